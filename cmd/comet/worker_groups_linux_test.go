package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/internal/background"
)

// TestGroups kills what a killed worker left running, and nothing else.
func TestGroups(t *testing.T) {
	t.Parallel()
	const task = "550e8400-e29b-41d4-a716-446655440004"
	// begin starts a command that has started something, and notes its group.
	begin := func(t *testing.T, dir string) (cmd *exec.Cmd, child int) {
		t.Helper()
		g, ended, err := openGroups(dir)
		require.NoError(t, err)
		require.Empty(t, ended)
		cmd = exec.CommandContext(t.Context(), "/bin/sh", "-c", "sleep 600 & echo $!; wait")
		cmd.Env = append(os.Environ(), "COMET_TASK_ID="+task)
		background.SetProcessGroup(cmd)
		cmd.SysProcAttr.Pdeathsig = 0 // the test's threads come and go
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = background.KillProcessGroup(cmd.Process.Pid) })
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		child, err = strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		_, err = g.add(cmd.Process.Pid, task)
		require.NoError(t, err)
		return cmd, child
	}
	// orphan kills the command alone, as the system does when its worker is killed.
	orphan := func(t *testing.T, cmd *exec.Cmd, child int) {
		t.Helper()
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.True(t, alive(child))
	}
	change := func(t *testing.T, dir string, cmd *exec.Cmd, old, replacement string) {
		t.Helper()
		path := filepath.Join(dir, strconv.Itoa(cmd.Process.Pid)+".json")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(data), old)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, replacement, 1)), 0o600))
	}
	reopened := func(t *testing.T, dir string) (ended []string) {
		t.Helper()
		_, ended, err := openGroups(dir)
		require.NoError(t, err)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "records are removed")
		return ended
	}

	t.Run("kills processes that a command has started", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cmd, child := begin(t, filepath.Join(dir, "groups"))
		orphan(t, cmd, child)
		st, err := openState(dir)
		require.NoError(t, err)
		defer st.unlock()
		require.Equal(t, []string{task}, st.ended)
		require.Eventually(t, func() bool { return !alive(child) }, time.Minute, time.Millisecond)
	})

	t.Run("kills a command that outlived its worker", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cmd, child := begin(t, dir)
		require.Equal(t, []string{task}, reopened(t, dir))
		require.Error(t, cmd.Wait())
		require.Eventually(t, func() bool { return !alive(child) }, time.Minute, time.Millisecond)
	})

	t.Run("spares a process with the same pid and another start", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cmd, child := begin(t, dir)
		change(t, dir, cmd, `"started":`, `"started":1`)
		require.Empty(t, reopened(t, dir))
		require.True(t, alive(cmd.Process.Pid))
		require.True(t, alive(child))
	})

	t.Run("spares a process of another boot", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cmd, child := begin(t, dir)
		change(t, dir, cmd, `"boot":"`, `"boot":"another `)
		require.Empty(t, reopened(t, dir))
		require.True(t, alive(child))
	})

	t.Run("spares a group without a process of the task", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cmd, child := begin(t, dir)
		orphan(t, cmd, child)
		change(t, dir, cmd, task, "650e8400-e29b-41d4-a716-446655440004")
		require.Empty(t, reopened(t, dir))
		require.True(t, alive(child))
	})

	t.Run("records a command only while it runs", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		g, _, err := openGroups(dir)
		require.NoError(t, err)
		release := filepath.Join(dir, "release")
		r := newRunner([]string{"/bin/sh", "-c", `until [ -e "$0/release" ]; do sleep 0.01; done; ls "$0"`, dir}, workerFlags{maxOutput: 1 << 10}, io.Discard)
		r.groups = g
		done := make(chan agent.Result, 1)
		go func() {
			result, _ := r.runTask(t.Context(), &fakeTask{parameters: "{}"})
			done <- result
		}()
		require.Eventually(t, func() bool {
			found, err := filepath.Glob(filepath.Join(dir, "*.json"))
			return err == nil && len(found) == 1
		}, time.Minute, time.Millisecond)
		require.NoError(t, os.WriteFile(release, nil, 0o600))
		require.Contains(t, (<-done).Output, ".json")
		found, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(t, err)
		require.Empty(t, found)
	})
}
