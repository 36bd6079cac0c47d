package orchestrator

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// stands makes a part: "open", "failed", or what a success gave.
func stands(n int, how string) share {
	p := share{Task: models.Task{AgentID: string(rune('a' + n)), State: models.TaskDone, EndedAt: new(time.Unix(int64(n), 0))}}
	switch how {
	case "open":
		p.State, p.EndedAt = models.TaskRunning, nil
	case "failed":
		p.State, p.Error, p.ErrorCode = models.TaskFailed, "it broke", string(FailureWork)
	default:
		p.output, p.sum = []byte(how), sha256.Sum256([]byte(how))
	}
	return p
}

func TestJudge(t *testing.T) {
	t.Parallel()
	const goesOn = "goes on"
	for name, c := range map[string]struct {
		how   models.Aggregate
		parts []string
		want  string // "goes on", "fails: …", "takes b" or what it gives
	}{
		"the first success ends it":                     {"first", []string{"open", "x", "open"}, "takes b"},
		"of two successes the earlier one counts":       {"first", []string{"failed", "x", "y"}, "takes b"},
		"a failure does not end it while others work":   {"first", []string{"failed", "open"}, goesOn},
		"where all fail, the last failure is its":       {"first", []string{"failed", "failed"}, "fails: it broke (the last 2 workers: b)"},
		"all waits for each":                            {"all", []string{"x", "open"}, goesOn},
		"one failure ends all":                          {"all", []string{"open", "failed"}, "fails: it broke (of all 2 workers: b)"},
		"all lists what each gave, JSON as JSON":        {"all", []string{`{"n": 1}`, "two", ""}, `[{"agent_id":"a","output":{"n":1}},{"agent_id":"b","output":"two"},{"agent_id":"c","output":""}]`},
		"a majority is enough":                          {"majority", []string{"x", "open", "x"}, "takes a"},
		"half is none":                                  {"majority", []string{"x", "y", "open", "x"}, goesOn},
		"a majority is of all, failures too":            {"majority", []string{"x", "failed", "failed"}, "fails: no majority: 1 of 3 workers agree at most"},
		"what cannot be a majority is not waited for":   {"majority", []string{"x", "y", "z", "open"}, "fails: no majority: 2 of 4 workers agree at most"},
		"where all fail there is no vote":               {"majority", []string{"failed", "failed"}, "fails: it broke (the last 2 workers: b)"},
		"a merge waits for all":                         {"merge", []string{"x", "open"}, goesOn},
		"a merge does without those that failed":        {"merge", []string{"x", "failed", "y"}, "x\ny"},
		"objects are united, and the earliest counts":   {"merge", []string{`{"a":1,"b":1}`, `{"b":2,"c":2}`}, `{"a":1,"b":1,"c":2}`},
		"lists are put behind each other":               {"merge", []string{`[1]`, `[]`, `[2,3]`}, `[1,2,3]`},
		"an object and a list are texts":                {"merge", []string{`{}`, `[]`}, "{}\n[]"},
		"null is a text":                                {"merge", []string{`null`, `{"a":1}`}, "null\n{\"a\":1}"},
		"an empty result adds no line":                  {"merge", []string{"x", "", "y"}, "x\ny"},
		"where nobody succeeds there is nothing to do":  {"merge", []string{"failed", "failed"}, "fails: it broke (the last 2 workers: b)"},
		"a single worker is a majority":                 {"majority", []string{"x"}, "takes a"},
		"a single worker's failure is told as it is":    {"all", []string{"failed"}, "fails: it broke"},
		"what was cancelled counts as not having given": {"all", []string{"x", "failed"}, "fails: it broke (of all 2 workers: b)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parts []share
			for i, how := range c.parts {
				parts = append(parts, stands(i, how))
			}
			out := judge(c.how, len(parts), parts)
			switch got := string(out.output); {
			case !out.over:
				got = goesOn
				require.Equal(t, c.want, got)
			case out.text != "":
				require.Equal(t, c.want, "fails: "+out.text)
			case out.taken != nil:
				require.Equal(t, c.want, "takes "+out.taken.AgentID)
			default:
				require.Equal(t, c.want, got)
			}
		})
	}
}
