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

// group is a process group that was made for a task. The leader's number alone does not
// name it: numbers are used again.
type group struct {
	Leader int `json:"leader"`
	// Started is when the leader was, in the system's ticks since it booted, and Boot
	// names that boot.
	Started int64  `json:"started"`
	Boot    string `json:"boot"`
	Task    string `json:"task"`
}

// groups notes in a directory which process groups there are, a file for each: the system
// kills a command when its worker is killed, but not what the command has started. The
// next worker does. A nil one notes nothing, and so does one of a system that does not
// tell when a process was started.
type groups struct{ dir string }

// openGroups ends what an earlier worker left running and returns which tasks that was for.
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
			continue // not ours
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

// add notes the group of a command that has just started. The function it returns is to
// be called when nobody of the group is left.
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
		return nothing, fmt.Errorf("the process group of a task cannot be noted: %w", err)
	}
	return func() error {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, nil
}
