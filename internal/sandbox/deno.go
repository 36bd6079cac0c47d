package sandbox

import (
	"context"
	_ "embed" // the runner
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// denoRunner is the other end of a run in Deno: the engine and the child of QuickJS in one,
// around the same prelude.
//
//go:embed deno_runner.js
var denoRunner string

// The oldest version is the first that the runner was tried with.
const oldestDenoMajor, oldestDenoMinor = 2, 9

// denoSpare is what V8's heap may have besides the code's memory, in MiB: Deno's own objects,
// and the frames.
const denoSpare = 32

// denoKind makes ready what children that are Deno need: the program, and a folder with what
// they run, which is the caller's to remove.
func denoKind(ctx context.Context, o *Options) (k *kind, home string, err error) {
	program, err := denoProgram(ctx, o.Deno)
	if err != nil {
		return nil, "", err
	}
	if home, err = os.MkdirTemp("", "comet-deno-"); err != nil {
		return nil, "", fmt.Errorf("sandbox.backend deno: %w", err)
	}
	quoted, err := json.Marshal(prelude)
	if err != nil {
		return nil, "", err
	}
	runner, text := filepath.Join(home, "runner.js"), strings.Replace(denoRunner, "PRELUDE", string(quoted), 1)
	if err = os.WriteFile(runner, []byte(text), 0o600); err != nil {
		return nil, "", errors.Join(fmt.Errorf("sandbox.backend deno: %w", err), os.RemoveAll(home))
	}
	return &kind{
		command: func(memoryMB int) []string { return denoCommand(program, runner, memoryMB) },
		// It finds no folder for its books, which are kept in memory then.
		env:  []string{"TZ=UTC", "NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1", "DENO_DIR=" + filepath.Join(runner, "none")},
		warm: make(chan *process), sized: true, frame: maxFromChild(o),
	}, home, nil
}

// denoCommand starts Deno with no permission at all. Code cannot be made of strings either:
// such code could import what Deno brings along.
func denoCommand(program, runner string, memoryMB int) []string {
	return []string{
		program, "run", "--quiet", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--cached-only", "--no-check", "--no-code-cache",
		"--v8-flags=--disallow-code-generation-from-strings,--max-heap-size=" + strconv.Itoa(memoryMB+denoSpare), runner,
	}
}

// denoProgram finds the program and asks for its version.
func denoProgram(ctx context.Context, name string) (string, error) {
	program, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("sandbox.deno: sandbox.backend deno needs Deno %d.%d or newer: %w", oldestDenoMajor, oldestDenoMinor, err)
	}
	if program, err = filepath.Abs(program); err != nil {
		return "", fmt.Errorf("sandbox.deno: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env, cmd.WaitDelay = []string{"NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1"}, time.Second
	said, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("sandbox.deno: %s does not say its version: %w", program, err)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	words := strings.Fields(line) // deno 2.1.4 (stable, release, …)
	if len(words) < 2 || words[0] != "deno" {
		return "", fmt.Errorf("sandbox.deno: %s is not Deno: it says %q", program, clip(line, 100))
	}
	var major, minor int
	_, err = fmt.Sscanf(words[1], "%d.%d.", &major, &minor)
	if err != nil || major < oldestDenoMajor || major == oldestDenoMajor && minor < oldestDenoMinor {
		return "", fmt.Errorf("sandbox.deno: %s is Deno %s, sandbox.backend deno needs %d.%d or newer", program, clip(words[1], 100), oldestDenoMajor, oldestDenoMinor)
	}
	return program, nil
}
