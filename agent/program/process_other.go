//go:build !linux

package program

// groupMemory is unknown on this system: the hint max_memory_mb is not enforced.
func groupMemory(int) int64 { return 0 }

// KillLeftover cannot find processes on this system.
func KillLeftover(string) (tasks []string) { return nil }
