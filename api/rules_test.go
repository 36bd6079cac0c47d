package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/store/storetest"
)

// runOnEveryDatabase runs a test on each database.
func runOnEveryDatabase(t *testing.T, fn func(t *testing.T, h *fixture)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		fn(t, setup(t, db, fixtureOptions{}))
	})
}

// create makes an agent with a parent, or returns why not. Further members are
// JSON, each beginning with a comma.
func (h *fixture) create(t testing.TB, id string, level, frequency int, parent, more string) response {
	t.Helper()
	if parent != "" {
		more = fmt.Sprintf(`,"sphere_id":1,"parent_id":%q%s`, parent, more)
	}
	return h.do(t, "POST", "/api/v1/agents", fmt.Sprintf(`{"id":%q,"name":"x","level":%d,"frequency_hz":%d%s}`, id, level, frequency, more))
}

// createFamily has one agent of each level below nova.
func createFamily(t testing.TB, h *fixture) []string {
	t.Helper()
	require.Equal(t, http.StatusCreated, h.create(t, "the-l2", 2, 555, "orch-personnel", "").status)
	require.Equal(t, http.StatusCreated, h.create(t, "the-l3", 3, 444, "the-l2", "").status)
	return []string{"nova", "orch-personnel", "the-l2", "the-l3"}
}

// TestFrequencies holds every create against the document's validate_frequency
// (CHE·NU §4.2): every level with every channel of §4.1 and what lies beside them.
func TestFrequencies(t *testing.T) {
	t.Parallel()
	rules := map[int][]int{ // as printed
		0: {999},
		1: {888},
		2: {555, 666},
		3: {444},
	}
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		parents := append([]string{""}, createFamily(t, h)...)
		for level, allowed := range rules {
			for _, hz := range []int{111, 222, 333, 444, 555, 666, 777, 888, 999, 0, 1, 443, 445, 554, 556, 600, 665, 667, 1000, -444} {
				got := h.create(t, fmt.Sprintf("l%d-at-%d", level, max(hz, 0)), level, hz, parents[level], "")
				switch valid := slices.Contains(allowed, hz); {
				case !valid:
					p := got.problem(t, 400, errs.InvalidFrequency)
					require.Equal(t, "Invalid frequency for level", p.Title)
					require.Equal(t, "/frequency_hz", p.Errors[0].Pointer)
				case level == 0:
					got.problem(t, 409, errs.SystemAgentExists) // right, but there is one
				default:
					require.Equal(t, http.StatusCreated, got.status, "L%d at %d Hz: %s", level, hz, got.body)
				}
			}
		}
	})
}

// TestParentLevels holds every create and every move against CHE·NU §3.2: L1
// under L0, L2 under L1, L3 under L2.
func TestParentLevels(t *testing.T) {
	t.Parallel()
	frequency := []int{999, 888, 555, 444}
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		levels := createFamily(t, h)
		for level := 1; level <= 3; level++ {
			for parentLevel, parent := range levels {
				id := fmt.Sprintf("l%d-under-l%d", level, parentLevel)
				created := h.create(t, id, level, frequency[level], parent, "")
				moved := h.do(t, "PATCH", "/api/v1/agents/"+levels[level], fmt.Sprintf(`{"parent_id":%q}`, parent))
				if parentLevel == level-1 {
					require.Equal(t, http.StatusCreated, created.status, "%s: %s", id, created.body)
					require.Equal(t, http.StatusOK, moved.status, "%s: %s", id, moved.body)
					continue
				}
				for _, got := range []response{created, moved} {
					p := got.problem(t, 400, errs.InvalidParentLevel)
					require.Equal(t, "Invalid parent level", p.Title)
					require.Equal(t, "/parent_id", p.Errors[0].Pointer)
				}
			}
		}
	})
}

// TestBudgets holds creates and changes against the limits of CHE·NU §5.1 and
// the least of §2.2.
func TestBudgets(t *testing.T) {
	t.Parallel()
	table := []struct{ level, byDefault, most int }{{1, 100_000, 500_000}, {2, 25_000, 100_000}, {3, 10_000, 50_000}}
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		levels := createFamily(t, h)
		for _, row := range table {
			var detail struct {
				TokenBudget int `json:"token_budget"`
			}
			try := func(id, member string) (created, changed response) {
				created = h.create(t, fmt.Sprintf("l%d-%s", row.level, id), row.level, []int{999, 888, 555, 444}[row.level], levels[row.level-1], member)
				return created, h.do(t, "PATCH", "/api/v1/agents/"+levels[row.level], "{"+strings.TrimPrefix(member, ",")+"}")
			}
			created, _ := try("default", "")
			require.Equal(t, http.StatusCreated, created.status)
			h.do(t, "GET", created.header.Get("Location"), "").decode(t, 200, &detail)
			require.Equal(t, row.byDefault, detail.TokenBudget)
			for budget, code := range map[int]errs.Code{
				0: errs.InvalidRequest, 999: errs.InvalidRequest, 1000: "", row.most: "",
				row.most + 1: errs.BudgetExceedsMaximum, 1 << 40: errs.BudgetExceedsMaximum,
			} {
				created, changed := try(fmt.Sprintf("with-%d", budget), fmt.Sprintf(`,"token_budget":%d`, budget))
				if code == "" {
					require.Equal(t, []int{201, 200}, []int{created.status, changed.status}, "L%d with %d", row.level, budget)
					changed.decode(t, 200, &detail)
					require.Equal(t, budget, detail.TokenBudget)
					continue
				}
				status := map[errs.Code]int{errs.InvalidRequest: 400, errs.BudgetExceedsMaximum: 422}[code]
				for _, got := range []response{created, changed} {
					require.Equal(t, "/token_budget", got.problem(t, status, code).Errors[0].Pointer)
				}
			}
		}
	})
}

// TestAgentPagesAreComplete walks every order by cursor, by Link and by offset,
// over names that databases like to sort in ways of their own.
func TestAgentPagesAreComplete(t *testing.T) {
	t.Parallel()
	type page struct {
		Agents []struct{ ID, Name string } `json:"agents"`
		Next   string                      `json:"next_cursor"`
	}
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		names := []string{"b", "B", "ä", "a", "Z", "é", "e\u0301", "🤖", "_", "a b", "ab", "A-b", "10", "9", "a", "a", "ß", "\uffff", "\ufb01", "ı"}
		for i, name := range names {
			body := replaceMember(strings.ReplaceAll(goodDraft, "$ID", fmt.Sprintf("agent-%d", i)), "name", quoted(name))
			require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents", body).status)
		}
		for _, sort := range []string{"id", "-id", "name", "-name", "level", "-level", "created_at", "-created_at"} {
			var all page
			h.do(t, "GET", "/api/v1/agents?limit=1000&sort="+sort, "").decode(t, 200, &all)
			require.Len(t, all.Agents, 10+len(names), sort)
			if strings.HasSuffix(sort, "name") { // the order of bytes, on every database
				order := make([]string, len(all.Agents))
				for i, a := range all.Agents {
					order[i] = a.Name
				}
				if sort == "-name" {
					slices.Reverse(order)
				}
				require.True(t, slices.IsSorted(order), "%s: %q", sort, order)
			}
			var byCursor, byLink, byOffset page
			for target := "/api/v1/agents?limit=7&sort=" + sort; target != ""; {
				var p page
				got := h.do(t, "GET", target, "")
				got.decode(t, 200, &p)
				byLink.Agents = append(byLink.Agents, p.Agents...)
				target, _, _ = strings.Cut(strings.TrimPrefix(got.header.Get("Link"), "<"), `>; rel="next"`)
			}
			for cursor := ""; ; {
				var p page
				h.do(t, "GET", "/api/v1/agents?limit=3&sort="+sort+cursor, "").decode(t, 200, &p)
				byCursor.Agents = append(byCursor.Agents, p.Agents...)
				if p.Next == "" {
					break
				}
				cursor = "&cursor=" + p.Next
			}
			for offset := 0; offset < 10+len(names); offset += 4 {
				var p page
				h.do(t, "GET", fmt.Sprintf("/api/v1/agents?limit=4&offset=%d&sort=%s", offset, sort), "").decode(t, 200, &p)
				byOffset.Agents = append(byOffset.Agents, p.Agents...)
			}
			require.Equal(t, all.Agents, byLink.Agents, "%s by Link", sort)
			require.Equal(t, all.Agents, byCursor.Agents, "%s by cursor", sort)
			require.Equal(t, all.Agents, byOffset.Agents, "%s by offset", sort)
		}
	})
}

// TestRosterWithManyErrors has more mistakes than are listed: the first comes first,
// and the last entry counts the rest.
func TestRosterWithManyErrors(t *testing.T) {
	t.Parallel()
	h := setup(t, storetest.Open(t, "sqlite"), fixtureOptions{})
	body := "version: 1\nagents:\n" + strings.Repeat("  - {level: 2}\n", 9000)
	p := h.do(t, "POST", "/api/v1/roster", body, "Content-Type", "application/yaml").problem(t, 400, errs.InvalidRequest)
	require.Equal(t, "agents[0].id is required", p.Detail)
	require.Equal(t, errs.Field{Pointer: "/agents/0/id", Rule: "required", Detail: p.Detail, Line: 3}, p.Errors[0])
	require.Len(t, p.Errors, 1000)
	last := p.Errors[len(p.Errors)-1]
	require.Equal(t, "max", last.Rule)
	require.Contains(t, last.Detail, "17001 more")
}

// TestRosterRoundTrip exports a registry and imports it elsewhere: the two are
// the same, in either form.
func TestRosterRoundTrip(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
				createFamily(t, h)
				for i, text := range []string{
					`"yes"`, `"# no comment"`, `"- a\n- b"`, `"a: b"`, `"'\"\\"`, `"\r\n"`, `" padded "`, `"\u2028\u0301🤖"`, `"1e3"`, `"~"`, `"<<"`,
					`"%YAML 1.1"`, `"---"`, `"null"`, `"2026-01-10"`, `"0x1F"`, `"\ufeff"`, `"\uffff"`, `"\u200b"`, `"a\ttab"`, `"trailing\n\n"`,
				} {
					body := replaceMember(strings.ReplaceAll(goodDraft, "$ID", fmt.Sprintf("text-%d", i)), "description", text)
					require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents", body).status, text)
				}
				require.Equal(t, http.StatusOK, h.do(t, "PATCH", "/api/v1/agents/text-0", `{"budget_scope":"subtree"}`).status)
				require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/agents/the-l3", "").status)
				exported := h.do(t, "GET", "/api/v1/roster?format="+format, "")
				require.Equal(t, http.StatusOK, exported.status)

				contentType := exported.header.Get("Content-Type")
				var report struct{ Agents, Created, Updated, Unchanged int }
				h.do(t, "POST", "/api/v1/roster", string(exported.body), "Content-Type", contentType).decode(t, 200, &report)
				require.Equal(t, report.Agents, report.Unchanged, "here nothing changes")

				elsewhere := setup(t, storetest.Open(t, h.db.Database()), fixtureOptions{})
				elsewhere.do(t, "POST", "/api/v1/roster", string(exported.body), "Content-Type", contentType).decode(t, 200, &report)
				require.Equal(t, 10, report.Unchanged, "the founders are there already")
				require.Equal(t, report.Agents-10, report.Created)
				require.Equal(t, string(exported.body), string(elsewhere.do(t, "GET", "/api/v1/roster?format="+format, "").body))
			})
		})
	}
}
