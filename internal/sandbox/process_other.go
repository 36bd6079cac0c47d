//go:build !linux

package sandbox

import (
	"os"
	"time"
)

// These systems have the limits of the engine and the parent's deadline only, and do not measure a
// running child. When this process is killed, a child ends with its standard input.

func protectProcess() {}

func restrictThread() error { return nil }

func confine() (base int64, err error) { return 0, nil }

func setLimits(int64, int, time.Duration) error { return nil }

func exceededCPU(*os.ProcessState) bool { return false }

func runningCPU(int) time.Duration { return 0 }

func peakMemory(int) int64 { return 0 }
