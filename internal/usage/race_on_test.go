//go:build race

package usage_test

// costly is how much dearer each request is than in an ordinary run.
const costly = 3
