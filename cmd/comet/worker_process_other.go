//go:build !linux

package main

// groupMemory is unknown on this system: the hint max_memory_mb is not enforced.
func groupMemory(int) int64 { return 0 }

// startOf is unknown on this system: what a killed worker leaves running is not recorded.
func startOf(int) (started int64, boot string, ok bool) { return 0, "", false }

func (group) lives() bool { return false }
