package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// contain puts a command into a process group of its own. The command itself is killed
// when the worker is; what it started in the group goes on, until the next worker with
// the same state ends it.
func contain(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupMemory is the memory that a process group has in use, in bytes: the resident sets
// of its processes and of whatever they started, memory they share counted for each.
func groupMemory(group int) int64 {
	all := processes()
	pages := int64(0)
	for pid, p := range all {
		if p.group == group || descends(all, pid, group) {
			pages += p.pages
		}
	}
	return pages * int64(os.Getpagesize())
}

// processes are all that there are.
func processes() map[int]procStat {
	all := map[int]procStat{}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return all
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			all[pid] = readProcess(data)
		}
	}
	return all
}

// procStat is what is read of a process.
type procStat struct {
	parent, group int
	started       int64 // in ticks since the system booted
	pages         int64
}

// readProcess reads /proc/PID/stat (proc_pid_stat(5)). The name, the second field, may
// hold anything but ends with the last parenthesis.
func readProcess(stat []byte) (p procStat) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return p
	}
	number := func(n int) int64 { // as the manual counts them
		v, _ := strconv.ParseInt(string(fields[n-3]), 10, 64)
		return v
	}
	return procStat{parent: int(number(4)), group: int(number(5)), started: number(22), pages: number(24)}
}

func descends(all map[int]procStat, pid, from int) bool {
	for depth := 0; pid > 1 && depth < 100; depth++ {
		if pid == from {
			return true
		}
		pid = all[pid].parent
	}
	return false
}
