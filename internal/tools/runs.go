package tools

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// maxSequences is how many clients are followed at a time, runGap after which a client's next
	// call begins something new.
	maxSequences = 2000
	sequenceGap  = 5 * time.Minute
)

// callSequences follows which tools a client calls one after the other: what is used together is
// found together (AgentCards, search_tools).
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

// note takes a call that went well, and tells of it together with the one before.
func (r *callSequences) note(by Caller, tool string, tell func(tools []string)) {
	key := by.Session
	if key == "" {
		key = by.Principal.TokenID
	}
	now := time.Now()
	before, ok := r.last.Get(key)
	r.last.Add(key, lastCall{tool, now})
	if ok && before.tool != tool && now.Sub(before.at) < sequenceGap {
		tell([]string{before.tool, tool})
	}
}

// recordRun strengthens the usage graph by tools that did something together.
func (h *Service) recordRun(tools []string) {
	if err := h.index.Record(context.Background(), tools, true); err != nil {
		h.log.Debug("a run is not recorded", "error", err)
	}
}
