package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

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
