//go:build race

package webhooks_test

// costly is how much dearer each delivery is than in an ordinary run.
const costly = 3
