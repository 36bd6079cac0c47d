package intent_test

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
	"comet/internal/workflow/intent"
	"comet/internal/workflow/plan"
	"comet/models"
)

// catalogue is tools with an index of their descriptions.
type catalogue struct {
	*toolsearch.Index
	tools map[string]intent.Tool
}

// publishedTools returns the tools of published servers (testdata/README.md), or only those of a catalogue.
func publishedTools(tb testing.TB, onlyCatalogue bool) *catalogue {
	tb.Helper()
	var classes map[string]models.ToolClass
	readJSON(tb, "testdata/catalogue.json", &classes)
	files, err := os.ReadDir("../../toolsearch/testdata/tools")
	require.NoError(tb, err)
	paths := []string{"testdata/fetch.json"}
	for _, f := range files {
		paths = append(paths, "../../toolsearch/testdata/tools/"+f.Name())
	}
	out := &catalogue{toolsearch.New(nil, nil), map[string]intent.Tool{}}
	for _, path := range paths {
		var list struct {
			Server string
			Tools  []struct {
				Name, Title, Description string
				InputSchema              json.RawMessage
			}
		}
		readJSON(tb, path, &list)
		var indexed []toolsearch.Tool
		for _, t := range list.Tools {
			id := list.Server + ":" + t.Name
			class, listed := classes[id]
			if onlyCatalogue && !listed {
				continue
			}
			out.tools[id] = intent.Tool{ID: id, Description: t.Description, InputSchema: t.InputSchema, Class: class}
			indexed = append(indexed, toolsearch.Tool{ID: id, Server: list.Server, Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema})
		}
		out.Replace(list.Server, indexed)
	}
	if onlyCatalogue {
		require.Len(tb, out.tools, len(classes))
	}
	return out
}

func readJSON(tb testing.TB, path string, into any) {
	tb.Helper()
	text, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.NoError(tb, json.Unmarshal(text, into), path)
}

// propose returns the proposal with the scores of the index, without a usage graph.
func (c *catalogue) propose(tb testing.TB, sentence string, context json.RawMessage) intent.Proposal {
	tb.Helper()
	p, err := intent.Propose(intent.Request{
		Sentence: sentence, Context: context, Hops: func(string, string) int { return 0 },
		Find: func(text string) (found []intent.Tool) {
			r, err := c.Search(tb.Context(), toolsearch.Query{Text: text, Limit: 10})
			require.NoError(tb, err)
			for _, h := range r.Hits {
				t := c.tools[h.ID]
				t.Score = h.Score
				found = append(found, t)
			}
			return found
		},
	})
	require.NoError(tb, err)
	return p
}

type sentence struct {
	Lang, Sentence string
	Context        json.RawMessage
	Steps          []struct {
		Tools     []string
		Arguments json.RawMessage
		Missing   []string
		After     []int
	}
}

// rightTools reports whether each step has one of its right tools. Without a tool for a sentence, the right answer is none.
func (s *sentence) rightTools(p *intent.Proposal) bool {
	if len(s.Steps) == 0 {
		return p.Verdict == intent.ExplicitRequired
	}
	if len(s.Steps) != len(p.Steps) {
		return false
	}
	for i, want := range s.Steps {
		if !slices.Contains(want.Tools, p.Steps[i].Tool) {
			return false
		}
	}
	return true
}

// isPlan reports whether a proposal with the right tools is the expected plan.
func (s *sentence) isPlan(t *testing.T, p *intent.Proposal) bool {
	if len(s.Steps) == 0 {
		return true
	}
	made, err := plan.New(p.Steps, "")
	require.NoError(t, err)
	for i, want := range s.Steps {
		var expected, got any
		require.NoError(t, json.Unmarshal(want.Arguments, &expected))
		require.NoError(t, json.Unmarshal(p.Steps[i].Arguments, &got))
		if !assert.ObjectsAreEqual(expected, got) || !slices.Equal(want.After, made.Steps[i].Needs) {
			return false
		}
	}
	return true
}

// missingOf returns the pointers of the missing arguments of a step, or of all.
func missingOf(p *intent.Proposal, step string) (out []string) {
	for _, m := range p.Missing {
		if m.Step == step || step == "" {
			out = append(out, m.Argument)
		}
	}
	return out
}

// TestSentences measures the proposals for sentences whose plans were written before (testdata/README.md).
func TestSentences(t *testing.T) {
	m := measure(t, publishedTools(t, true), "testdata/sentences.json")
	assert.Equal(t, 60, m.sentences)
	assert.GreaterOrEqual(t, m.right*100, m.sentences*80, "right tools")
}

// TestUnseenSentences measures sentences that the rules were not made for, among all published tools.
func TestUnseenSentences(t *testing.T) {
	m := measure(t, publishedTools(t, false), "testdata/unseen.json")
	assert.Equal(t, 40, m.sentences)
	assert.GreaterOrEqual(t, m.right*100, m.sentences*80, "right tools")
}

type measured struct{ sentences, right, plans, wrong, unnamed int }

// measure proposes plans and logs those that differ from the expected ones. It fails for wrong executions and
// for missing arguments that are not named.
func measure(t *testing.T, tools *catalogue, path string) (m measured) {
	t.Helper()
	var sentences []sentence
	readJSON(t, path, &sentences)
	verdicts := map[intent.Verdict]int{}
	m.sentences = len(sentences)
	for _, s := range sentences {
		p := tools.propose(t, s.Sentence, s.Context)
		verdicts[p.Verdict]++
		m.unnamed += unreported(t, tools, &p)
		rightTools := s.rightTools(&p)
		unnamed, missing := 0, 0
		if rightTools {
			m.right++
			unnamed, missing = s.unnamed(&p)
			m.unnamed += unnamed
		}
		isPlan := rightTools && s.isPlan(t, &p)
		switch {
		case isPlan:
			m.plans++
		default:
			t.Logf("%q, right tools %t: %s %.2f %s missing %v unclear %q", s.Sentence, rightTools, p.Verdict, p.Confidence, summary(&p), missingOf(&p, ""), p.Unclear)
		}
		assert.Zero(t, unnamed, "%q: missing arguments that are not named: %v", s.Sentence, missingOf(&p, ""))
		if p.Verdict == intent.Execute && (!isPlan || missing > 0) {
			m.wrong++
			t.Errorf("%q: would execute %s", s.Sentence, summary(&p))
		}
	}
	t.Logf("%d sentences: %d execute, %d suggestions, %d need explicit steps; right tools %d, the whole plan %d; wrong executions %d, missing arguments not named %d",
		m.sentences, verdicts[intent.Execute], verdicts[intent.Suggestion], verdicts[intent.ExplicitRequired], m.right, m.plans, m.wrong, m.unnamed)
	return m
}

// unnamed returns how many of the expected missing arguments are not reported, and how many there are.
func (s *sentence) unnamed(p *intent.Proposal) (unnamed, all int) {
	for i, want := range s.Steps {
		reported := missingOf(p, p.Steps[i].ID)
		all += len(want.Missing)
		for _, at := range want.Missing {
			if !slices.ContainsFunc(reported, func(r string) bool { return r == at || strings.HasPrefix(r, at+"/") }) {
				unnamed++
			}
		}
	}
	return unnamed, all
}

// TestTraps has sentences that no tool executes as they are meant, among them negations, conditions, choices,
// and values that are missing, ambiguous or of no use.
func TestTraps(t *testing.T) {
	var traps []string
	readJSON(t, "testdata/traps.json", &traps)
	for _, tools := range []*catalogue{publishedTools(t, true), publishedTools(t, false)} {
		for _, s := range traps {
			p := tools.propose(t, s, nil)
			assert.NotEqual(t, intent.Execute, p.Verdict, "%q: %s", s, summary(&p))
		}
	}
}

// TestSearchQueriesAsSentences proposes plans for the queries of the evaluation of the search, among all tools.
func TestSearchQueriesAsSentences(t *testing.T) {
	tools := publishedTools(t, false)
	var queries []struct {
		Query string
		Wants []string
	}
	readJSON(t, "../../toolsearch/testdata/queries.json", &queries)
	right, executed := 0, 0
	for _, q := range queries {
		p := tools.propose(t, q.Query, nil)
		isRight := len(p.Steps) == 1 && slices.Contains(q.Wants, p.Steps[0].Tool)
		if isRight {
			right++
		}
		if p.Verdict == intent.Execute {
			executed++
			assert.True(t, isRight, "%q: would execute %s", q.Query, summary(&p))
		}
	}
	t.Logf("%d queries: right tools %d, %d execute", len(queries), right, executed)
}

// unreported returns how many required arguments of the top level have no value and are not reported.
func unreported(t *testing.T, tools *catalogue, p *intent.Proposal) (n int) {
	for _, s := range p.Steps {
		var schema jsonschema.Schema
		require.NoError(t, json.Unmarshal(tools.tools[s.Tool].InputSchema, &schema))
		var arguments map[string]any
		require.NoError(t, json.Unmarshal(s.Arguments, &arguments))
		for _, name := range schema.Required {
			_, given := arguments[name]
			if !given && !slices.ContainsFunc(missingOf(p, s.ID), func(at string) bool { return at == "/"+name || strings.HasPrefix(at, "/"+name+"/") }) {
				t.Errorf("%s: %s has no value and is not reported", s.Tool, name)
				n++
			}
		}
	}
	return n
}

func summary(p *intent.Proposal) string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.Tool+" "+string(s.Arguments))
	}
	return cmp.Or(strings.Join(out, "; "), "nothing")
}
