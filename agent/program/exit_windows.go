package program

import "os"

func exitStatus(state *os.ProcessState) int { return state.ExitCode() }

// maxMemory is unknown on this system.
func maxMemory(*os.ProcessState) int64 { return 0 }
