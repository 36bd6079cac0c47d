package main

import (
	"os"
	"runtime/debug"
)

// collectLess lets the heap of a server grow to five times what is in use before it is
// collected, in the place of twice: reading JSON leaves much behind, and a third of the
// processor's time goes there otherwise (docs/performance.md, “Tools”). GOGC, where it is set,
// decides instead.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
