//go:build !linux

package background

func unmapFilePages() {}

// MemoryLimit returns the memory limit of the process's control group in bytes, 0 for none.
func MemoryLimit() int64 { return 0 }
