package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry/registrytest"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// badInput is one request that is invalid, or looks invalid.
type badInput struct {
	name   string
	method string // POST where it is empty
	target string
	header []string // name, value, …; an empty value leaves the header out
	// body may hold $ID, an unknown id.
	body string
	// want is the code of the problem, then the place and the rule of each entry
	// of errors[]: "invalid-request /id agent_id, /name required". A place is a
	// JSON pointer, ?parameter, Header: or "-" for the whole. A number is the
	// status of a request that is accepted; its values must then be stored.
	want string
	// text is a part of the detail of the problem or of one of its errors.
	text string
}

// statuses is the HTTP status of each code this file expects.
func statuses() map[errs.Code]int {
	return map[errs.Code]int{
		errs.InvalidRequest: 400, errs.MalformedJSON: 400, errs.MalformedYAML: 400, errs.InvalidParameter: 400, errs.InvalidHeader: 400,
		errs.InvalidFrequency: 400, errs.ParentNotFound: 400, errs.InvalidParentLevel: 400, errs.ImmutableField: 400,
		errs.Unauthenticated: 401, errs.NotFound: 404, errs.MethodNotAllowed: 405, errs.AgentExists: 409, errs.SystemAgentExists: 409,
		errs.ProtectedAgent: 409, errs.RequestIDReused: 409, errs.Conflict: 409, errs.TaskState: 409, errs.RangeNotSatisfiable: 416, errs.UnsupportedWork: 422, errs.BodyTooLarge: 413, errs.UnsupportedMediaType: 415, errs.BudgetExceedsMaximum: 422, errs.AddressRefused: 422,
	}
}

// TestBadInput sends several hundred bad requests one after the other to one
// server. Each is answered with its exact status, code, place and rule; and
// after all of them the registry holds what was accepted and nothing else.
func TestBadInput(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(badDrafts(), badTypes(), badUnicode(), badJSON(), badPatches(), badTokens(), badKeys(), badPublicKeys(), badRosters(), badQueries(), badAddresses(), badHeaders(), badWebhooks(), badHookRequests())
	require.GreaterOrEqual(t, len(cases), 220)
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{})
		patched := h.do(t, "POST", "/api/v1/agents", strings.ReplaceAll(goodDraft, "$ID", "patch-me"))
		require.Equal(t, http.StatusCreated, patched.status, "%s", patched.body)
		accepted := map[string]bool{"patch-me": true}
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				id := fmt.Sprintf("case-%d", i)
				if c.check(t, h, strings.ReplaceAll(c.body, "$ID", id)) && c.target == "/api/v1/agents" {
					accepted[idOf(t, strings.ReplaceAll(c.body, "$ID", id))] = true
				}
			})
		}
		requireEqualNumbers(t, h, accepted)
	})
}

func TestBadInputNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range slices.Concat(badDrafts(), badTypes(), badUnicode(), badJSON(), badPatches(), badTokens(), badKeys(), badPublicKeys(), badRosters(), badQueries(), badAddresses(), badHeaders(), badWebhooks(), badHookRequests()) {
		require.False(t, seen[c.name], c.name)
		seen[c.name] = true
	}
}

// check sends the request and compares the answer; it reports whether it was
// accepted.
func (c badInput) check(t *testing.T, h *fixture, body string) bool {
	t.Helper()
	method := c.method
	if method == "" {
		method = http.MethodPost
	}
	got := h.do(t, method, c.target, body, c.header...)
	code, places, _ := strings.Cut(c.want, " ")
	if status, err := strconv.Atoi(code); err == nil {
		require.Equal(t, status, got.status, "%s", got.body)
		if method == http.MethodPost || method == http.MethodPatch {
			c.requireStored(t, h, body, got)
		}
		return true
	}
	status, known := statuses()[errs.Code(code)]
	require.True(t, known, "%s is no code", code)
	p := got.problem(t, status, errs.Code(code))
	var found []string
	text := p.Detail
	for _, f := range p.Errors {
		found = append(found, fieldLocation(f)+" "+f.Rule)
		text += "\n" + f.Detail
	}
	require.Contains(t, text, c.text)
	require.Equal(t, places, strings.Join(found, ", "), "%s", got.body)
	return false
}

func fieldLocation(f errs.Field) string {
	switch {
	case f.Pointer != "":
		return f.Pointer
	case f.Parameter != "":
		return "?" + f.Parameter
	case f.Header != "":
		return f.Header + ":"
	}
	return "-"
}

// requireStored checks that the values of an accepted request are returned byte for byte.
func (c badInput) requireStored(t *testing.T, h *fixture, body string, got response) {
	t.Helper()
	target := c.target
	switch target {
	case "/api/v1/agents":
		target += "/" + idOf(t, body)
	case "/api/v1/tokens", "/api/v1/webhooks":
		target = got.header.Get("Location")
	case "/api/v1/roster":
		return // its report says what it did
	}
	var sent, has map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &sent))
	h.do(t, "GET", target, "").decode(t, http.StatusOK, &has)
	for member, value := range sent {
		if value == nil || value == "" && has[member] == nil {
			continue // null and "" mean nothing, or the default
		}
		if member == "secret" || member == "asymmetric" {
			require.NotContains(t, has, member)
			continue // of a webhook, which never shows its keys
		}
		require.Equal(t, value, has[member], member)
	}
}

func idOf(t *testing.T, body string) string {
	t.Helper()
	var draft struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(body), &draft))
	return draft.ID
}

// requireEqualNumbers checks that the registry contains the ten initial agents, unchanged,
// and the accepted agents, and that the tree is consistent.
func requireEqualNumbers(t *testing.T, h *fixture, accepted map[string]bool) {
	t.Helper()
	page, err := h.registry.List(t.Context(), store.AgentQuery{Sort: "id", Limit: 1000})
	require.NoError(t, err)
	var extra []string
	founders := 0
	for _, a := range page.Agents {
		if a.Level <= models.LevelOrchestrator {
			founders++
			require.EqualValues(t, 1, a.Version, "%s was changed", a.ID)
			continue
		}
		extra = append(extra, a.ID)
	}
	require.Equal(t, 10, founders)
	require.ElementsMatch(t, slices.Collect(maps.Keys(accepted)), extra)
	require.Empty(t, registrytest.BrokenRules(page.Agents))
}

// goodDraft breaks no rule.
const goodDraft = `{"id":"$ID","name":"A Name","level":2,"sphere_id":1,"frequency_hz":555,"capabilities":["budgeting"],` +
	`"description":"What it does","type":"research","parent_id":"orch-personnel","token_budget":15000}`

// draftWith is goodDraft with a member of another value, as JSON.
func draftWith(member, value string) string { return replaceMember(goodDraft, member, value) }

// replaceMember replaces a member of a flat JSON object; "" leaves it out.
func replaceMember(object, member, value string) string {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		panic(err) // the object is a constant of this package
	}
	delete(members, member)
	parts := make([]string, 0, len(members)+1)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		parts = append(parts, strconv.Quote(name)+":"+string(members[name]))
	}
	if value != "" {
		parts = append(parts, strconv.Quote(member)+":"+value)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// quoted is a text as a JSON string, nothing of it escaped that need not be.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
