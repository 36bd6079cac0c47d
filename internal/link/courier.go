package link

import (
	"context"
	"time"

	"comet/models"
)

// spare is how many messages beside work may be handed over and not acknowledged.
const spare = 100

// courier hands the messages of an agent over on one line. It is not safe for
// concurrent use.
type courier struct {
	l     *Links
	line  *held
	agent models.Agent
	// again is after what time a message is handed over again, 0 for never.
	again time.Duration
	// limit is the longest message in bytes, 0 for any.
	limit int
	// sent are the messages that were handed over, and when.
	sent map[string]time.Time
}

// parcel is one message as it is handed over.
type parcel struct {
	id    string
	parts [][]byte
}

// round hands over what is in the inbox and was not handed over yet, at most so many
// messages: not more work than the agent takes at a time, and of the rest no more than
// the line keeps in mind. An error of hand ends it. later is when there will be
// something to hand over again, 0 for not.
func (c *courier) round(ctx context.Context, most int, hand func(parcel) error) (later time.Duration, err error) {
	window := c.line.places + spare + len(c.sent)
	all, err := c.l.core.Work.Messages(ctx, c.agent.ID, window)
	if err != nil {
		return time.Second, nil //nolint:nilerr // the database is away; the messages are not
	}
	work := c.prune(all, len(all) == window)
	now := c.l.opts.Clock()
	for _, m := range all {
		at, was := c.sent[m.ID]
		if was && (c.again == 0 || now.Sub(at) < c.again) {
			later = sooner(later, c.again-now.Sub(at))
			continue
		}
		if most == 0 || !was && !c.fits(m, work) {
			continue
		}
		handed, err := c.hand(ctx, m, was, hand)
		if err != nil {
			return 0, err
		}
		if !handed {
			continue
		}
		most--
		if m.Kind == models.MessageAssign && !was {
			work++
		}
		if c.again > 0 {
			later = sooner(later, c.again)
		}
	}
	return later, nil
}

// fits reports whether there is room for a message that was not handed over yet.
func (c *courier) fits(m models.InboxMessage, work int) bool {
	if m.Kind == models.MessageAssign && work >= c.line.places {
		return false
	}
	return len(c.sent) < c.line.places+spare
}

// sooner returns the smaller of two times of which one that is not positive is none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// prune forgets what is not in the inbox any more, and returns how much work is handed
// over and not acknowledged. Where there may be more in the inbox, nothing is forgotten.
func (c *courier) prune(all []models.InboxMessage, more bool) (work int) {
	still := make(map[string]bool, len(c.sent))
	for _, m := range all {
		if _, was := c.sent[m.ID]; was {
			still[m.ID] = true
			if m.Kind == models.MessageAssign {
				work++
			}
		}
	}
	for id := range c.sent {
		if !more && !still[id] {
			delete(c.sent, id)
		}
	}
	return work
}

// hand hands one message over. One that is not true any more is acknowledged, and one
// that cannot be written is left for another time.
func (c *courier) hand(ctx context.Context, m models.InboxMessage, again bool, hand func(parcel) error) (bool, error) {
	parts, err := c.line.speech.Render(ctx, c.agent, m, c.limit)
	if err != nil {
		c.l.report("a message could not be written and waits", m.AgentID, err)
		return false, nil
	}
	if len(parts) == 0 {
		_, err := c.l.core.Work.Acknowledge(ctx, m.AgentID, []string{m.ID})
		c.l.report("a message could not be taken back", m.AgentID, err)
		return false, nil
	}
	if err := hand(parcel{m.ID, parts}); err != nil {
		return false, err
	}
	if c.sent == nil {
		c.sent = map[string]time.Time{}
	}
	c.sent[m.ID] = c.l.opts.Clock()
	c.l.counts.told(c.line.link, again)
	return true, nil
}
