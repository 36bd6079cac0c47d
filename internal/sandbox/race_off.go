//go:build linux && !race

package sandbox

const forRaces = 0
