package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// startOf tells when a process was started, and in which boot of the system; not ok is
// one that has ended.
func startOf(pid int) (started int64, boot string, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, "", false
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return readProcess(stat).started, string(bytes.TrimSpace(id)), err == nil
}

// lives reports whether some of the group are still there. Where the leader is, its start
// tells whether it is the same one. Where it is gone, its number may have become that of
// another group, which ended too but for some: only a process that was told the same task
// shows that it is not so, and as long as it lives the system gives the number to nobody
// else.
func (g group) lives() bool {
	started, boot, there := startOf(g.Leader)
	if there {
		return boot == g.Boot && started == g.Started
	}
	for pid, p := range processes() {
		if p.group == g.Leader && p.started >= g.Started && told(pid, g.Task) {
			return true
		}
	}
	return false
}

// told reports whether a process was started for a task.
func told(pid int, task string) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // it is somebody else's, or has ended
	}
	return slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(entry []byte) bool { return string(entry) == taskVariable+task })
}
