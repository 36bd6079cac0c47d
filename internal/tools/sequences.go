package tools

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// maxSequences is how many clients are tracked, and sequenceGap the pause after which a
	// client's next call begins a new sequence.
	maxSequences = 2000
	sequenceGap  = 5 * time.Minute
)

// callSequences tracks which tools a client calls one after the other, for the usage graph of the
// search (AgentCards, search_tools).
type callSequences struct{ last *lru.Cache[string, lastCall] }

type lastCall struct {
	tool string
	at   time.Time
}

func newCallSequences() *callSequences {
	last, err := lru.New[string, lastCall](maxSequences)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &callSequences{last}
}

// note adds a successful call and reports it together with the previous one.
func (r *callSequences) note(by Caller, tool string, report func(tools []string)) {
	key := by.Session
	if key == "" {
		key = by.Principal.TokenID
	}
	now := time.Now()
	before, ok := r.last.Get(key)
	r.last.Add(key, lastCall{tool, now})
	if ok && before.tool != tool && now.Sub(before.at) < sequenceGap {
		report([]string{before.tool, tool})
	}
}

// RecordRun adds tools that were used together to the usage graph of the search. A single tool adds
// nothing.
func (svc *Service) RecordRun(tools []string) {
	if len(tools) < 2 {
		return
	}
	if err := svc.index.Record(tools); err != nil {
		svc.log.Debug("record a run in the usage graph", "error", err)
	}
}
