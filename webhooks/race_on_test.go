//go:build race

package webhooks_test

// costly is the factor by which the race detector slows down a delivery.
const costly = 3
