package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// groupMemory is the memory of a process group in bytes: the resident sets of its processes and
// of all their descendants. Shared memory counts for each.
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

// processes are all processes by pid.
func processes() map[int]procStat {
	all := map[int]procStat{}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return all
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			all[pid] = readProcess(data)
		}
	}
	return all
}

// procStat is a part of /proc/PID/stat.
type procStat struct {
	parent, group int
	started       int64 // in ticks since the system booted
	pages         int64
}

// readProcess reads /proc/PID/stat (proc_pid_stat(5)). The second field, the name, may hold any
// character but ends with the last parenthesis.
func readProcess(stat []byte) (p procStat) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return p
	}
	number := func(n int) int64 { // numbered as in the manual
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

// startOf returns when a process was started and the id of the boot; ok is false if it has ended.
func startOf(pid int) (started int64, boot string, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, "", false
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return readProcess(stat).started, string(bytes.TrimSpace(id)), err == nil
}

// lives reports whether a process of the group is alive. If the leader exists, its start shows
// whether it is the same one. Otherwise its pid may belong to another group by now, which a
// remaining process of the same task disproves: while it lives the kernel does not reuse the pid.
func (g group) lives() bool {
	started, boot, there := startOf(g.Leader)
	if there {
		return boot == g.Boot && started == g.Started
	}
	for pid, p := range processes() {
		if p.group == g.Leader && p.started >= g.Started && isOfTask(pid, g.Task) {
			return true
		}
	}
	return false
}

// isOfTask reports whether a process was started for a task.
func isOfTask(pid int, task string) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // another user's process, or it has ended
	}
	return slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(entry []byte) bool { return string(entry) == taskVariable+task })
}
