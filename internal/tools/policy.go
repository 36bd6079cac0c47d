package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
)

// policyTTL is how long a policy is cached: changes of other replicas take effect in a second.
const policyTTL = 750 * time.Millisecond

// maxPolicies is the size of the cache.
const maxPolicies = 10_000

type cachedPolicy struct {
	policy *policy
	until  time.Time
}

// cachedPolicyOf returns the policies of a token and of the tokens that it descends from; a token without
// one may call everything.
func (svc *Service) cachedPolicyOf(ctx context.Context, tokenID string) (*policy, error) {
	now := svc.opts.Clock()
	if r, ok := svc.policies.Get(tokenID); ok && now.Before(r.until) {
		return r.policy, nil
	}
	stored, err := svc.store.Tools(ctx).Policies(tokenID)
	if err != nil {
		return nil, err
	}
	var out *policy
	for _, p := range stored {
		out = &policy{p, out}
	}
	svc.policies.Add(tokenID, cachedPolicy{out, now.Add(policyTTL)})
	return out, nil
}

// policy is the policy of a token. A nil policy allows everything.
type policy struct {
	models.ToolPolicy
	above *policy // of a token that this one descends from: both must allow a call
}

// refusal is why a token may not call a tool with any arguments.
type refusal struct {
	reason string
	rule   string // the pattern that matched, "" for none
}

// allowsTool reports whether a token may call a tool with any arguments.
func (p *policy) allowsTool(server, tool string, class models.ToolClass) bool {
	return p.refuse(server, tool, class) == nil
}

// refuse returns why a token may not call a tool with any arguments, nil if it may.
func (p *policy) refuse(server, tool string, class models.ToolClass) *refusal {
	if p == nil {
		return nil
	}
	if uri, ok := strings.CutPrefix(tool, resourcePrefix); ok && hasEscapedParentSegment(uri) && len(p.Allow)+len(p.Deny) > 0 {
		return &refusal{reason: "the URI has escaped .. segments"} // rules match the URI as written, which here is not the resource it reads
	}
	if len(p.Classes) > 0 && !slices.Contains(p.Classes, class) {
		return &refusal{reason: "classes does not contain the class of the tool"}
	}
	if len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(r models.ToolRule) bool { return ruleMatches(r, server, tool) }) {
		return &refusal{reason: "no rule of allow matches the tool"}
	}
	if denied := p.deny(server, tool); denied != nil {
		return denied
	}
	return p.above.refuse(server, tool, class)
}

// deny returns the rule that denies a tool with any arguments, nil for none.
func (p *policy) deny(server, tool string) *refusal {
	if p == nil {
		return nil
	}
	for _, r := range p.Deny {
		if len(r.Arguments) == 0 && ruleMatches(r, server, tool) {
			return &refusal{"a rule of deny matches the tool", r.Tool}
		}
	}
	return p.above.deny(server, tool)
}

// denies reports whether a rule denies a tool with any arguments.
func (p *policy) denies(server, tool string) bool { return p.deny(server, tool) != nil }

// allowsServer reports whether a token may call any tool of a server.
func (p *policy) allowsServer(server string) bool {
	if p == nil {
		return true
	}
	on := func(r models.ToolRule) bool {
		pattern, _, _ := strings.Cut(r.Tool, ":")
		return matchesPattern(pattern, server)
	}
	all := func(r models.ToolRule) bool {
		_, tool, both := strings.Cut(r.Tool, ":")
		return on(r) && len(r.Arguments) == 0 && (!both || tool == "*")
	}
	return (len(p.Allow) == 0 || slices.ContainsFunc(p.Allow, on)) && !slices.ContainsFunc(p.Deny, all) && p.above.allowsServer(server)
}

// allowsArguments reports whether a visible tool may be called with arguments.
func (p *policy) allowsArguments(t *Tool, args json.RawMessage) bool {
	if p == nil {
		return true
	}
	has := func(r models.ToolRule) bool { return len(r.Arguments) > 0 }
	if !slices.ContainsFunc(p.Allow, has) && !slices.ContainsFunc(p.Deny, has) {
		return p.above.allowsArguments(t, args)
	}
	values, ok := argumentValues(args)
	if !ok {
		return false
	}
	if len(p.Allow) > 0 && !t.IsGateway() && !slices.ContainsFunc(p.Allow, func(r models.ToolRule) bool {
		return ruleMatches(r, t.Server, t.Name) && values.allMatch(r.Arguments)
	}) {
		return false
	}
	return !slices.ContainsFunc(p.Deny, func(r models.ToolRule) bool {
		return len(r.Arguments) > 0 && ruleMatches(r, t.Server, t.Name) && values.anyMatch(r.Arguments)
	}) && p.above.allowsArguments(t, args)
}

func ruleMatches(r models.ToolRule, server, tool string) bool {
	onServer, onTool, both := strings.Cut(r.Tool, ":")
	return matchesPattern(onServer, server) && (!both || matchesPattern(onTool, tool))
}

// hasEscapedParentSegment reports whether a URI has a ".." segment, also escaped once or twice.
func hasEscapedParentSegment(uri string) bool {
	for range 3 {
		if hasParentSegment(uri) {
			return true
		}
		plain, err := url.PathUnescape(uri)
		if err != nil || plain == uri {
			return false
		}
		uri = plain
	}
	return hasParentSegment(uri)
}

// pathName escapes a name in a path: a\.b is the member "a.b", a.b the member "b" of "a".
var pathName = strings.NewReplacer(".", `\.`, `\`, `\\`) //nolint:gochecknoglobals // a constant

// arguments are the values of a call by path. The values of a list are at the path of the list; * has all values.
type arguments map[string][]string

// argumentValues decodes the arguments of a call. ok is false for invalid JSON and for duplicate
// names, which a tool may read differently.
func argumentValues(args json.RawMessage) (out arguments, ok bool) {
	if jsontext.Value(args).IsValid() { // rejects duplicate names
		text := json.NewDecoder(bytes.NewReader(args))
		text.UseNumber()
		var v map[string]any
		if text.Decode(&v) == nil {
			out = arguments{}
			out.add("", v)
			return out, true
		}
	}
	return nil, false
}

func (a arguments) add(at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			next := pathName.Replace(name)
			if at != "" {
				next = at + "." + next
			}
			a.add(next, inner)
		}
	case []any:
		for _, inner := range v {
			a.add(at, inner)
		}
	default:
		text, ok := v.(string)
		if !ok {
			other, _ := json.Marshal(v) // never fails for decoded JSON
			text = string(other)
		}
		a[at], a["*"] = append(a[at], text), append(a["*"], text)
	}
}

// allMatch reports whether all values of every path match. ".." matches only a pattern with "..".
func (a arguments) allMatch(patterns map[string]string) bool {
	for at, pattern := range patterns {
		if len(a[at]) == 0 {
			return false
		}
		for _, v := range a[at] {
			if hasParentSegment(v) && !hasParentSegment(pattern) || !matchesPattern(pattern, v) {
				return false
			}
		}
	}
	return true
}

// anyMatch reports whether every path has a value that matches its pattern, also as a clean path.
func (a arguments) anyMatch(patterns map[string]string) bool {
	for at, pattern := range patterns {
		if !slices.ContainsFunc(a[at], func(v string) bool { return matchesPattern(pattern, v) || matchesPattern(pattern, path.Clean(v)) }) {
			return false
		}
	}
	return true
}

func hasParentSegment(v string) bool {
	return slices.Contains(strings.FieldsFunc(v, func(r rune) bool { return r == '/' || r == '\\' }), "..")
}

// matchesPattern reports whether a text matches a pattern: * stands for any characters or none, ?
// for one byte. Its time is proportional to the product of both lengths.
func matchesPattern(pattern, text string) bool {
	p, t, star, retry := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, retry = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			retry++
			p, t = star+1, retry
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// Policy returns a token's policy and its version, or an empty policy and 0 if it has none.
func (svc *Service) Policy(ctx context.Context, tokenID string) (models.ToolPolicy, int64, error) {
	p, version, err := svc.store.Tools(ctx).Policy(tokenID)
	if errs.Is(err, errs.NotFound) {
		return p, 0, nil
	}
	return p, version, err
}

// SetPolicy sets the policy of a token and returns its new version.
func (svc *Service) SetPolicy(ctx context.Context, by models.Principal, tokenID string, p models.ToolPolicy, pre models.Precondition) (version int64, err error) {
	if err := checkRules(p); err != nil {
		return 0, err
	}
	err = svc.changePolicy(ctx, tokenID, pre, func(tx *store.Tx) error {
		version = tx.Now().UnixMicro()
		return tx.Tools().SavePolicy(tokenID, p, by.Name)
	})
	return version, err
}

func (svc *Service) changePolicy(ctx context.Context, tokenID string, pre models.Precondition, change func(*store.Tx) error) error {
	err := svc.store.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.Tokens().Lock(tokenID); err != nil { // it may have no policy that could be locked
			return err
		}
		_, version, err := tx.Tools().Policy(tokenID)
		if err == nil || errs.Is(err, errs.NotFound) {
			err = pre.Check(version)
		}
		if err != nil {
			return err
		}
		return change(tx)
	})
	svc.policies.Remove(tokenID)
	return err
}

// checkRules rejects rules that match nothing: a deny rule with a mistake would deny nothing.
func checkRules(p models.ToolPolicy) error {
	var v errs.Violations
	id := regexp.MustCompile(`^[A-Za-z0-9*?-]+$`)
	for name, list := range map[string][]models.ToolRule{"allow": p.Allow, "deny": p.Deny} {
		for i, r := range list {
			if server, _, _ := strings.Cut(r.Tool, ":"); !id.MatchString(server) {
				v.Add(errs.InvalidRequest, fmt.Sprintf("/%s/%d/tool", name, i), "pattern",
					"%q matches no server: write serverId:toolName, or a server's id, with * and ? as wildcards", input.Clip(r.Tool))
			}
		}
	}
	return v.Err()
}

// DeletePolicy deletes the policy of a token.
func (svc *Service) DeletePolicy(ctx context.Context, tokenID string, pre models.Precondition) error {
	return svc.changePolicy(ctx, tokenID, pre, func(tx *store.Tx) error { return tx.Tools().DeletePolicy(tokenID) })
}

// maxPattern is the maximum length of a pattern in bytes.
const maxPattern = 300
