package tools

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// maxRuns is how many clients are followed at a time, runGap after which a client's next
	// call begins something new.
	maxRuns = 2000
	runGap  = 5 * time.Minute
)

// runs follows which tools a client calls one after the other: what is used together is
// found together (AgentCards, search_tools).
type runs struct{ last *lru.Cache[string, lastCall] }

type lastCall struct {
	tool string
	at   time.Time
}

func newRuns() *runs {
	last, err := lru.New[string, lastCall](maxRuns)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &runs{last}
}

// note takes a call that went well, and tells of it together with the one before.
func (r *runs) note(by Caller, tool string, tell func(tools []string)) {
	key := by.Session
	if key == "" {
		key = by.Principal.TokenID
	}
	now := time.Now()
	before, ok := r.last.Get(key)
	r.last.Add(key, lastCall{tool, now})
	if ok && before.tool != tool && now.Sub(before.at) < runGap {
		tell([]string{before.tool, tool})
	}
}

// record strengthens the usage graph by tools that did something together.
func (h *Service) record(tools []string) {
	if err := h.index.Record(context.Background(), tools, true); err != nil {
		h.log.Debug("a run is not recorded", "error", err)
	}
}
