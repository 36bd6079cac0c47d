package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const suffixGroup = ".json"

// group is the process group of a task. The leader's pid alone does not identify it, because pids
// are reused.
type group struct {
	Leader int `json:"leader"`
	// Started is the leader's start in clock ticks since the system booted, and Boot is the id of
	// that boot.
	Started int64  `json:"started"`
	Boot    string `json:"boot"`
	Task    string `json:"task"`
}

// groups records the running process groups in a directory, one file each: if a worker is killed,
// the kernel kills its commands, but not the processes that these have started. The next worker
// does. A nil *groups records nothing, nor does one on a system that does not report when a
// process was started.
type groups struct{ dir string }

// openGroups kills what an earlier worker left running and returns the tasks of it.
func openGroups(dir string) (g *groups, ended []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(strings.TrimSuffix(e.Name(), suffixGroup)); err != nil {
			continue // a foreign file
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, ended, err
		}
		var left group
		if json.Unmarshal(data, &left) == nil && left.Leader > 1 && left.lives() && killGroup(left.Leader) == nil {
			ended = append(ended, left.Task)
		}
		if err := os.Remove(path); err != nil {
			return nil, ended, err
		}
	}
	return &groups{dir: dir}, ended, nil
}

// add records the group of a command that has started. The function it returns must be called
// when the group is empty.
func (g *groups) add(leader int, task string) (remove func() error, err error) {
	nothing := func() error { return nil }
	if g == nil {
		return nothing, nil
	}
	started, boot, ok := startOf(leader)
	if !ok {
		return nothing, nil
	}
	data, err := json.Marshal(group{Leader: leader, Started: started, Boot: boot, Task: task})
	if err != nil {
		return nothing, err
	}
	path := filepath.Join(g.dir, strconv.Itoa(leader)+suffixGroup)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nothing, fmt.Errorf("the process group of a task cannot be recorded: %w", err)
	}
	return func() error {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, nil
}
