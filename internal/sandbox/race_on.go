//go:build linux && race

package sandbox

// forRaces is the memory in which the race detector keeps its books, which grow with what the
// program uses.
const forRaces = 3 << 30
