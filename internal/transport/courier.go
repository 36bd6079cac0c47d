package transport

import (
	"context"
	"errors"
	"slices"
	"time"

	"comet/models"
)

// spare is how many messages beside work may be handed over and not acknowledged.
const spare = 100

// maxPause is how many times its first pause passes at most before a message is handed
// over again.
const maxPause = 16

// courier hands the messages of an agent over on one line. It is not safe for
// concurrent use.
type courier struct {
	l     *Transports
	line  *held
	agent models.Agent
	// again is after what time a message is handed over again, 0 for never. Where it
	// grows, that is twice as long each time, up to maxPause.
	again time.Duration
	grows bool
	// limit is the longest message in bytes, 0 for any.
	limit int
}

// parcel is one message as it is handed over.
type parcel struct {
	id    string
	parts [][]byte
}

// size is how long it is, in bytes.
func (p parcel) size() (n int) {
	for _, part := range p.parts {
		n += len(part)
	}
	return n
}

// errUnfit says of a message that it cannot be handed over on this line. It keeps its
// place, and is tried again like one that is not acknowledged.
var errUnfit = errors.New("the message does not fit the line")

// carry hands over what comes for the agent, as often as there is something, and has
// attend look after the line every heartbeat. It returns nil once the line is over,
// ctx.Err() once ctx is, and else the error of attend or of hand.
func (c *courier) carry(ctx context.Context, attend func(context.Context) error, hand func(parcel) error) error {
	news, stop := c.l.core.Work.Inbox(c.agent.ID)
	defer stop()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-news:
		case <-c.line.kick:
		case <-again.C:
		case <-c.line.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if c.line.due.Swap(false) {
			if err := attend(ctx); err != nil {
				return err
			}
			if c.line.ended() {
				return nil
			}
		}
		later, err := c.round(ctx, c.line.places+spare, hand)
		if err != nil {
			return err
		}
		if later > 0 {
			again.Reset(later)
		}
	}
}

// round hands over what is in the inbox and was not handed over yet, at most so many
// messages: not more work than the agent takes at a time, and of the rest no more than
// the line keeps in mind. An error of hand ends it, unless it is errUnfit. later is when
// there will be something to hand over again, 0 for not.
func (c *courier) round(ctx context.Context, most int, hand func(parcel) error) (later time.Duration, err error) {
	window := c.line.places + spare + c.line.sent.sweep()
	all, err := c.l.core.Work.Messages(ctx, c.agent.ID, window)
	if err == nil {
		err = c.prune(ctx, all, len(all) == window)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.l.complain(c.agent.ID, err)
		}
		return time.Second, nil // the database is away; the messages are not
	}
	out, work := c.line.sent.count()
	now := c.l.opts.Clock()
	for _, m := range all {
		before, was := c.line.sent.get(m.ID)
		if was && (before.had || c.again == 0) {
			continue
		}
		if wait := c.pause(before.times) - now.Sub(before.at); was && wait > 0 {
			later = sooner(later, wait)
			continue
		}
		if most == 0 || !was && !c.fits(m, out, work) {
			continue
		}
		done, err := c.hand(ctx, m, before, hand)
		if err != nil {
			return 0, err
		}
		if !done {
			continue
		}
		most--
		later = sooner(later, c.pause(before.times+1))
		if !was {
			out++
		}
		if m.Kind == models.MessageAssign && !was {
			work++
		}
	}
	return later, nil
}

// pause is how long a message that was handed over so many times is not handed over
// again, 0 where it never is.
func (c *courier) pause(times int) time.Duration {
	if !c.grows || times < 1 {
		return c.again
	}
	return c.again * time.Duration(min(1<<min(times-1, 10), maxPause))
}

// fits reports whether there is room for a message that was not handed over yet, beside
// those that are out and the work among them.
func (c *courier) fits(m models.InboxMessage, out, work int) bool {
	if m.Kind == models.MessageAssign && work >= c.line.places {
		return false
	}
	return out < c.line.places+spare
}

// sooner returns the smaller of two times of which one that is not positive is none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// prune forgets what is not in the inbox any more. Where there may be more in the inbox
// than was read, it is asked for.
func (c *courier) prune(ctx context.Context, all []models.InboxMessage, more bool) error {
	gone := c.line.sent.beside(all)
	if more && len(gone) > 0 {
		still, err := c.l.core.Work.MessagePending(ctx, c.agent.ID, gone)
		if err != nil {
			return err
		}
		there := make(map[string]bool, len(still))
		for _, id := range still {
			there[id] = true
		}
		gone = slices.DeleteFunc(gone, func(id string) bool { return there[id] })
	}
	c.line.sent.drop(gone)
	return nil
}

// hand hands one message over. One that is not true any more is acknowledged, and one
// that cannot be written is left for another time.
func (c *courier) hand(ctx context.Context, m models.InboxMessage, before handover, hand func(parcel) error) (bool, error) {
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
	// It is noted first: its acknowledgement may be here before hand is back.
	now := handover{at: c.l.opts.Clock(), work: m.Kind == models.MessageAssign, times: before.times + 1}
	c.line.sent.put(m.ID, now)
	err = hand(parcel{m.ID, parts})
	switch {
	case errors.Is(err, errUnfit):
		return true, nil
	case err != nil && before.times > 0:
		c.line.sent.put(m.ID, before)
		return false, err
	case err != nil:
		c.line.sent.drop([]string{m.ID})
		return false, err
	}
	c.l.counts.told(c.line.link, before.times > 0)
	return true, nil
}
