package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"comet/agent"
	"comet/agent/program"
	"comet/openapi/client"
)

// work runs a command for each task until ctx ends.
func work(ctx context.Context, c *call) error {
	concurrency, maxOutput := int(given[int64](c, "concurrency")), int(given[int64](c, "max-output"))
	grace, drain, quiet := given[time.Duration](c, "grace"), given[time.Duration](c, "drain"), given[time.Duration](c, "keep-alive")
	switch {
	case concurrency < 1 || concurrency > 1000:
		return usagef("--concurrency must be from 1 to 1000, not %d", concurrency)
	case maxOutput < 0 || maxOutput > 64<<20:
		return usagef("--max-output must be from 0 to 67108864, not %d", maxOutput)
	case grace < 0 || drain < 0 || quiet < 0:
		return usagef("--grace, --drain and --keep-alive must not be negative")
	}
	if _, err := exec.LookPath(c.args[0]); err != nil {
		return usagef("the command cannot be run: %w", err) // before the first task fails
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal was closed
	defer stop()
	who, err := c.workerIdentity(ctx, change{given[string](c, "type"), given[[]string](c, "capability")})
	if err != nil {
		return err
	}
	state := cmp.Or(given[string](c, "state"), filepath.Join("comet-worker-state", who.ID))
	cache, unlock, err := openState(state)
	if err != nil {
		return err
	}
	defer unlock()
	if state, err = filepath.Abs(state); err != nil {
		return err
	}
	for _, id := range program.KillLeftover(state) {
		printLine(c.messages, "killed processes that an earlier worker had left running for the task %s", id)
	}
	r := program.New(c.args, &program.Options{
		Grace: grace, MaxOutput: maxOutput, State: state, Log: func(line string) { printLine(c.messages, "%s", line) },
	})
	a, err := agent.New(c.server, c.token, &agent.Options{
		Concurrency: concurrency, Cache: cache, NoRerun: !given[bool](c, "rerun"), Drain: cmp.Or(drain, -1), Grace: grace + 5*time.Second, KeepAlive: cmp.Or(quiet, -1),
		OnConnect: func(h agent.Hello) {
			printLine(c.messages, "connected to %s as %s (%s): %s", c.server, h.AgentID, h.AgentType, count(concurrency, "slot", "slots"))
		},
		Logger: slog.New(slog.NewTextHandler(c.messages, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return usageError{err}
	}
	for _, name := range who.Capabilities {
		a.Handle(name, r.Run)
	}
	defer onSecondSignal(func() {
		a.Interrupt()
		r.Kill()
	})()
	return rejected("the server rejects the worker", a.Run(ctx))
}

// onSecondSignal calls act at a second SIGINT or SIGTERM; a third one ends the program. The
// function it returns stops that.
func onSecondSignal(act func()) (off func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends when off closes the channel
		<-signals
		if _, second := <-signals; second {
			signal.Stop(signals)
			act()
		}
	}()
	return func() {
		signal.Stop(signals) // nothing is sent afterwards
		close(signals)
	}
}

// workerIdentity returns the worker's agent in the registry. If the wanted values differ and the
// token has the scope, it updates the registry.
func (s *session) workerIdentity(ctx context.Context, wanted change) (client.AgentItem, error) {
	var me client.CallerIdentity
	if _, err := s.do(ctx, http.MethodGet, "/api/v1/me", nil, &me); err != nil {
		return client.AgentItem{}, err
	}
	if me.Agent == nil {
		return client.AgentItem{}, usagef(`the token is not bound to an agent; create one: comet tokens create NAME --agent AGENT --scope messages:send`)
	}
	who := *me.Agent
	difference := wanted.from(who)
	if difference == nil {
		return who, workerReady(who)
	}
	text, err := json.Marshal(difference)
	if err != nil {
		return who, err
	}
	if !slices.ContainsFunc(me.Token.Scopes, func(s client.TokenScope) bool { return s == "agents:write" || s == "admin" }) {
		return who, usagef(`the registry differs for %s, and the token may not change it; with the scope agents:write run: curl -X PATCH %s/api/v1/agents/%s -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d '%s'`,
			who.ID, strings.TrimSuffix(s.server, "/"), who.ID, strings.ReplaceAll(string(text), "'", `'\''`))
	}
	var updated struct {
		client.AgentItem
		Warnings []client.FieldError `json:"warnings"`
	}
	if _, err := s.do(ctx, http.MethodPatch, "/api/v1/agents/"+who.ID, difference, &updated); err != nil {
		return who, err
	}
	s.warn(updated.Warnings, "")
	printLine(s.messages, "updated %s in the registry: %s", who.ID, string(text))
	return updated.AgentItem, workerReady(updated.AgentItem)
}

// change is a change of the agent in the registry; zero values change nothing.
type change struct {
	Type         string   `json:"type,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// from returns the part that differs from the registry, nil if nothing does. The prefix "custom:"
// of a capability makes no difference.
func (c change) from(who client.AgentItem) *change {
	if c.Type == typeOf(who) {
		c.Type = ""
	}
	if slices.Equal(withoutPrefix(c.Capabilities), withoutPrefix(who.Capabilities)) {
		c.Capabilities = nil
	}
	if c.Type == "" && len(c.Capabilities) == 0 {
		return nil
	}
	return &c
}

func typeOf(who client.AgentItem) string { return *cmp.Or(who.Type, new("")) }

func withoutPrefix(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.TrimPrefix(n, "custom:")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// workerReady reports what an agent lacks to take tasks.
func workerReady(who client.AgentItem) error {
	switch {
	case typeOf(who) == "":
		return usagef("the agent %s has no type yet; set one with --type, such as infra, desktop, code or research", who.ID)
	case len(who.Capabilities) == 0:
		return usagef("the agent %s has no capabilities yet; set those of the command with --capability", who.ID)
	case !who.IsActive:
		return usagef("the agent %s is not active; comet agents restore %s restores it", who.ID, who.ID)
	}
	return nil
}

// openState opens the directory with results for this process alone, until unlock is called.
func openState(dir string) (cache *agent.DirCache, unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, usagef("the state directory cannot be created: %w", err)
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, nil, usagef("the state directory cannot be locked: %w", err)
	case !locked:
		return nil, nil, fmt.Errorf("another worker uses %s; set another directory with --state", dir)
	}
	unlock = func() { _ = lock.Unlock() }
	if cache, err = agent.OpenCache(filepath.Join(dir, "requests"), 0); err != nil {
		unlock()
	}
	return cache, unlock, err
}
