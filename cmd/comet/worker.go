package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

// workerFlags are the flags of "comet worker".
type workerFlags struct {
	kind                string
	capabilities        []string
	concurrency         int
	state               string
	maxOutput           int
	grace, drain, quiet time.Duration
	rerun               bool
}

func workerFlagsOf(c *call) workerFlags {
	return workerFlags{
		kind: given[string](c, "type"), capabilities: given[[]string](c, "capability"), concurrency: int(given[int64](c, "concurrency")),
		state: given[string](c, "state"), maxOutput: int(given[int64](c, "max-output")), grace: given[time.Duration](c, "grace"),
		drain: given[time.Duration](c, "drain"), quiet: given[time.Duration](c, "keep-alive"), rerun: given[bool](c, "rerun"),
	}
}

func (f workerFlags) check(command []string) error {
	switch {
	case f.concurrency < 1 || f.concurrency > 1000:
		return usagef("--concurrency must be from 1 to 1000, not %d", f.concurrency)
	case f.maxOutput < 0 || f.maxOutput > 64<<20:
		return usagef("--max-output must be from 0 to 67108864, not %d", f.maxOutput)
	case f.grace < 0 || f.drain < 0 || f.quiet < 0:
		return usagef("--grace, --drain and --keep-alive must not be negative")
	}
	return checkExecutable(command[0])
}

// work runs a command for each task until ctx ends.
func work(ctx context.Context, c *call) error {
	s, f := c.session, workerFlagsOf(c)
	if err := f.check(c.args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal was closed
	defer stop()
	who, err := s.workerIdentity(ctx, f)
	if err != nil {
		return err
	}
	if f.state == "" {
		f.state = filepath.Join("comet-worker-state", who.ID)
	}
	cache, unlock, err := openState(f.state)
	if err != nil {
		return err
	}
	defer unlock()
	if f.state, err = filepath.Abs(f.state); err != nil {
		return err
	}
	for _, id := range program.KillLeftover(f.state) {
		printLine(s.messages, "killed processes that an earlier worker had left running for the task %s", id)
	}
	r := program.New(c.args, &program.Options{
		Grace: f.grace, MaxOutput: f.maxOutput, State: f.state, Log: func(line string) { printLine(s.messages, "%s", line) },
	})
	a, err := agent.New(s.server, s.token, &agent.Options{
		Concurrency: f.concurrency, Cache: cache, NoRerun: !f.rerun, Drain: orNever(f.drain), Grace: f.grace + 5*time.Second, KeepAlive: orNever(f.quiet),
		OnConnect: func(h agent.Hello) {
			printLine(s.messages, "connected to %s as %s (%s): %s", s.server, h.AgentID, h.AgentType, count(f.concurrency, "slot", "slots"))
		},
		Logger: slog.New(slog.NewTextHandler(s.messages, &slog.HandlerOptions{Level: slog.LevelWarn})),
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
	return s.rejectedAgent(a.Run(ctx))
}

// orNever replaces 0 by the negative value that means never in the agent's options.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// onSecondSignal calls act at a second SIGINT or SIGTERM; a third one ends the program. The
// function it returns stops that.
func onSecondSignal(act func()) (off func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for range 2 {
			select {
			case <-signals:
			case <-done:
				return
			}
		}
		signal.Stop(signals)
		act()
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

// workerIdentity is the worker's agent in the registry. If the flags differ and the token has the
// scope, it updates the registry.
func (s *session) workerIdentity(ctx context.Context, f workerFlags) (client.AgentItem, error) {
	var me client.CallerIdentity
	if _, err := s.do(ctx, http.MethodGet, "/api/v1/me", nil, &me); err != nil {
		return client.AgentItem{}, err
	}
	if me.Agent == nil {
		return client.AgentItem{}, usagef(`the token is not bound to an agent; create one: comet tokens create NAME --agent AGENT --scope messages:send`)
	}
	who := *me.Agent
	change := workerChange(who, f)
	if change == nil {
		return who, workerReady(who)
	}
	text, err := json.Marshal(change)
	if err != nil {
		return who, err
	}
	if !hasScope(me.Token, "agents:write") {
		return who, usagef(`the registry differs for %s, and the token may not change it; with the scope agents:write run: curl -X PATCH %s/api/v1/agents/%s -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d '%s'`,
			who.ID, strings.TrimSuffix(s.server, "/"), who.ID, strings.ReplaceAll(string(text), "'", `'\''`))
	}
	var updated struct {
		client.AgentItem
		Warnings []client.FieldError `json:"warnings"`
	}
	if _, err := s.do(ctx, http.MethodPatch, "/api/v1/agents/"+who.ID, change, &updated); err != nil {
		return who, err
	}
	s.warn(updated.Warnings, "")
	printLine(s.messages, "updated %s in the registry: %s", who.ID, string(text))
	return updated.AgentItem, workerReady(updated.AgentItem)
}

// change is a change of the agent in the registry.
type change struct {
	Type         string   `json:"type,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// workerChange is how the flags differ from the registry, nil if they do not. The prefix
// "custom:" of a capability makes no difference.
func workerChange(who client.AgentItem, f workerFlags) *change {
	var c change
	if f.kind != "" && f.kind != typeOf(who) {
		c.Type = f.kind
	}
	if len(f.capabilities) > 0 && !slices.Equal(withoutPrefix(f.capabilities), withoutPrefix(who.Capabilities)) {
		c.Capabilities = f.capabilities
	}
	if c.Type == "" && c.Capabilities == nil {
		return nil
	}
	return &c
}

func typeOf(who client.AgentItem) string {
	if who.Type == nil {
		return ""
	}
	return *who.Type
}

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

func hasScope(t client.TokenView, scope string) bool {
	for _, s := range t.Scopes {
		if string(s) == scope || string(s) == "admin" {
			return true
		}
	}
	return false
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

// checkExecutable reports a missing command before the first task fails.
func checkExecutable(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return usagef("the command cannot be run: %w", err)
	}
	return nil
}

// rejectedAgent gives a rejected connection the exit code of a rejected request.
func (s *session) rejectedAgent(err error) error {
	var refused *agent.ResponseError
	if !errors.As(err, &refused) {
		return err
	}
	return &apiError{status: refused.Status, problem: client.Problem{
		Title: "the server rejects the worker", Detail: new(cmp.Or(refused.Detail, http.StatusText(refused.Status))),
	}}
}
