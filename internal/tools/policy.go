package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// policyTTL is how long a token's policy is not looked up again: like the token itself, a
// change on another replica counts within a second.
const policyTTL = 750 * time.Millisecond

// maxPolicies bounds how many policies are remembered.
const maxPolicies = 10_000

// policyCache knows what tokens may do with tools.
type policyCache struct {
	store *store.Store
	clock func() time.Time
	known *lru.Cache[string, cachedPolicy]
}

type cachedPolicy struct {
	policy *policy
	until  time.Time
}

func newPolicyCache(s *store.Store, clock func() time.Time) *policyCache {
	known, err := lru.New[string, cachedPolicy](maxPolicies)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &policyCache{store: s, clock: clock, known: known}
}

// get returns the policy of a token, one that allows everything where it has none.
func (p *policyCache) get(ctx context.Context, tokenID string) (*policy, error) {
	now := p.clock()
	if r, ok := p.known.Get(tokenID); ok && now.Before(r.until) {
		return r.policy, nil
	}
	kept, err := p.store.ToolPolicy(ctx, tokenID)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	out := &policy{kept}
	p.known.Add(tokenID, cachedPolicy{out, now.Add(policyTTL)})
	return out, nil
}

// invalidate has the next call look at the store again.
func (p *policyCache) invalidate(tokenID string) { p.known.Remove(tokenID) }

// policy decides which calls a token may make.
type policy struct{ models.ToolPolicy }

// allowsTool reports whether a token may call a tool at all, with some arguments.
func (p *policy) allowsTool(server, tool string, class models.ToolClass) bool {
	if uri, ok := strings.CutPrefix(tool, resourcePrefix); ok && hasEscapedParentSegment(uri) && len(p.Allow)+len(p.Deny) > 0 {
		return false // it says another place than it means, and rules go by what it says
	}
	if isAgentCards(server) { // and what they do is asked for itself
		return !slices.ContainsFunc(p.Deny, func(r models.ToolRule) bool { return len(r.Arguments) == 0 && ruleMatches(r, server, tool) })
	}
	if len(p.Classes) > 0 && !slices.Contains(p.Classes, class) {
		return false
	}
	if len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(r models.ToolRule) bool { return ruleMatches(r, server, tool) }) {
		return false
	}
	return !slices.ContainsFunc(p.Deny, func(r models.ToolRule) bool { return len(r.Arguments) == 0 && ruleMatches(r, server, tool) })
}

// isAgentCards reports whether the tools of a server do nothing but what the policy allows: the
// search names, and code calls, what its token may call. They are for every token but one
// that is denied them.
func isAgentCards(server string) bool { return server == agentCardsServer }

// allowsServer reports whether a token may call anything of a server.
func (p *policy) allowsServer(server string) bool {
	on := func(r models.ToolRule) bool {
		pattern, _, _ := strings.Cut(r.Tool, ":")
		return matchesPattern(pattern, server)
	}
	all := func(r models.ToolRule) bool {
		_, tool, both := strings.Cut(r.Tool, ":")
		return on(r) && len(r.Arguments) == 0 && (!both || tool == "*")
	}
	return (len(p.Allow) == 0 || slices.ContainsFunc(p.Allow, on)) && !slices.ContainsFunc(p.Deny, all)
}

// allowsArguments reports whether a tool that a token is shown may be called with arguments.
func (p *policy) allowsArguments(server, tool string, args json.RawMessage) bool {
	if !p.hasArgumentRules() {
		return true
	}
	values, ok := argumentValues(args)
	if !ok {
		return false
	}
	if len(p.Allow) > 0 && !isAgentCards(server) && !slices.ContainsFunc(p.Allow, func(r models.ToolRule) bool {
		return ruleMatches(r, server, tool) && values.allMatch(r.Arguments)
	}) {
		return false
	}
	return !slices.ContainsFunc(p.Deny, func(r models.ToolRule) bool {
		return len(r.Arguments) > 0 && ruleMatches(r, server, tool) && values.anyMatch(r.Arguments)
	})
}

func (p *policy) hasArgumentRules() bool {
	has := func(r models.ToolRule) bool { return len(r.Arguments) > 0 }
	return slices.ContainsFunc(p.Allow, has) || slices.ContainsFunc(p.Deny, has)
}

// ruleMatches reports whether a rule is about a tool.
func ruleMatches(r models.ToolRule, server, tool string) bool {
	onServer, onTool, both := strings.Cut(r.Tool, ":")
	return matchesPattern(onServer, server) && (!both || matchesPattern(onTool, tool))
}

// hasEscapedParentSegment is climbs also where the dots or the slashes are escaped, once or twice.
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

// arguments are the values of a call by their paths. A list's values all lie at the list's
// own path.
type arguments map[string][]string

// argumentValues reads what a call was given. ok is false where it cannot be read, or can be
// read in two ways: a name that comes twice means the one to us and the other to a tool.
func argumentValues(args json.RawMessage) (out arguments, ok bool) {
	if jsontext.Value(args).IsValid() { // which refuses names that come twice
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
			next := name
			if at != "" {
				next = at + "." + name
			}
			a.add(next, inner)
		}
	case []any:
		for _, inner := range v {
			a.add(at, inner)
		}
	case string:
		a[at] = append(a[at], v)
	default:
		text, _ := json.Marshal(v) // of what was JSON
		a[at] = append(a[at], string(text))
	}
}

// allMatch reports whether every value at every path matches its pattern, and there is one. A
// value that climbs with .. matches no pattern that does not: what it means is another
// place than it says.
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

// anyMatch reports whether at every path a value matches, as it is or with . and .. taken away.
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

// matchesPattern reports whether a text is what a pattern says: * stands for any characters, also
// none, and ? for one byte. It takes time in proportion to both lengths.
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
