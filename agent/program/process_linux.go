package program

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"comet/internal/background"
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
	parent, group, session int
	pages                  int64
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
	return procStat{parent: int(number(4)), group: int(number(5)), session: int(number(6)), pages: number(24)}
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

// KillLeftover kills the process groups that a killed worker with the same state directory has
// left running, and returns their tasks. Their environment variables identify them. Processes of a
// session that a command has started are daemons, which outlive their task on purpose.
func KillLeftover(state string) (tasks []string) {
	mark := stateVariable + state
	for pid, p := range processes() {
		variables := environOf(pid)
		if !slices.Contains(variables, mark) || !sharesDirectory(pid, state) || p.group <= 1 || p.group == syscall.Getpgrp() ||
			p.group == p.session || slices.Contains(environOf(p.session), mark) || background.KillProcessGroup(p.group) != nil {
			continue
		}
		for _, entry := range variables {
			if task, ok := strings.CutPrefix(entry, taskVariable); ok && !slices.Contains(tasks, task) {
				tasks = append(tasks, task)
			}
		}
	}
	return tasks
}

// sharesDirectory reports whether a path is the same directory for another process, which may be in
// another container.
func sharesDirectory(pid int, path string) bool {
	own, err := os.Stat(path)
	other, otherErr := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "root", path))
	return err == nil && otherErr == nil && os.SameFile(own, other)
}

// environOf returns the environment with which a process was started, nil for another user's
// process and for one that has ended.
func environOf(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\x00")
}
