//go:build race

package orchestrator_test

// costly is how much slower each step is than in an ordinary run.
const costly = 6
