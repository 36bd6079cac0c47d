package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"comet/agent"
	"comet/openapi/client"
)

// workerIdentity is the agent the worker is, as the registry knows it. Where the flags
// say otherwise the registry is told, if the token may.
func (s *session) workerIdentity(ctx context.Context, f workerFlags) (client.AgentItem, error) {
	body, err := s.answer(s.api.GetMe(ctx, nil))
	if err != nil {
		return client.AgentItem{}, err
	}
	var me client.CallerIdentity
	if err := decode(body, &me); err != nil {
		return client.AgentItem{}, err
	}
	if me.Agent == nil {
		return client.AgentItem{}, usagef(`the token is bound to no agent; make one with
  comet tokens create NAME --agent AGENT --scope messages:send`)
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
	if !may(me.Token, "agents:write") {
		return who, usagef(`the registry says otherwise of %s, and the token may not change that; somebody with agents:write can:
  curl -X PATCH %s/api/v1/agents/%s -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d '%s'`,
			who.ID, strings.TrimSuffix(s.server, "/"), who.ID, strings.ReplaceAll(string(text), "'", `'\''`))
	}
	body, err = s.answer(s.api.UpdateAgentWithBody(ctx, who.ID, &client.UpdateAgentParams{}, "application/json", strings.NewReader(string(text))))
	if err != nil {
		return who, err
	}
	var updated struct {
		client.AgentItem
		Warnings *[]client.FieldError `json:"warnings"`
	}
	if err := decode(body, &updated); err != nil {
		return who, err
	}
	s.warn(updated.Warnings)
	say(s.notes, "told the registry about %s: %s", who.ID, string(text))
	return updated.AgentItem, workerReady(updated.AgentItem)
}

// change is what the registry is to be told.
type change struct {
	Type         string   `json:"type,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// workerChange is what of the flags the registry does not say, nil for nothing. A
// capability is the same with and without custom:.
func workerChange(who client.AgentItem, f workerFlags) *change {
	var c change
	if f.kind != "" && f.kind != typeOf(who) {
		c.Type = f.kind
	}
	if len(f.capabilities) > 0 && !slices.Equal(bare(f.capabilities), bare(who.Capabilities)) {
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

func bare(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.TrimPrefix(n, "custom:")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// workerReady reports what an agent lacks to be given work.
func workerReady(who client.AgentItem) error {
	switch {
	case typeOf(who) == "":
		return usagef("the agent %s has no type yet; name one with --type, such as infra, desktop, code or research", who.ID)
	case len(who.Capabilities) == 0:
		return usagef("the agent %s has no capabilities yet; name what the command can do with --capability", who.ID)
	case !who.IsActive:
		return usagef("the agent %s is not active; comet agents restore %s brings it back", who.ID, who.ID)
	}
	return nil
}

func may(t client.TokenView, scope string) bool {
	for _, s := range t.Scopes {
		if string(s) == scope || string(s) == "admin" {
			return true
		}
	}
	return false
}

// state is what a worker keeps for the one after it.
type state struct {
	cache  *agent.DirCache
	groups *groups
	// ended are the tasks of which an earlier worker had left something running.
	ended  []string
	unlock func()
}

// openState opens the directory that remembers results, for this process alone, and ends
// what an earlier one that was killed has left running.
func openState(dir string) (st *state, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, usagef("the state cannot be kept: %w", err)
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, usagef("the state cannot be locked: %w", err)
	case !locked:
		return nil, fmt.Errorf("another worker uses %s; give this one its own with --state", dir)
	}
	st = &state{unlock: func() { _ = lock.Unlock() }}
	if st.groups, st.ended, err = openGroups(filepath.Join(dir, "groups")); err == nil {
		st.cache, err = agent.OpenCache(filepath.Join(dir, "requests"), 0)
	}
	if err != nil {
		st.unlock()
		return nil, err
	}
	return st, nil
}

// executable reports early what would fail every task.
func executable(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return usagef("the command cannot be run: %w", err)
	}
	return nil
}

// unreachableAgent gives a refused line the exit code of a refused request.
func (s *session) unreachableAgent(err error) error {
	var refused *agent.Refused
	if !errors.As(err, &refused) {
		return err
	}
	return &apiError{status: refused.Status, problem: client.Problem{
		Title: "the server refuses the worker", Detail: new(cmp.Or(refused.Detail, http.StatusText(refused.Status))),
	}}
}
