package tools

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestPrepaidAccount compares an account with a model after random operations: the amounts that the
// ledger has and that are still to be reported add up to the use, and no call gets more than the
// reservation.
func TestPrepaidAccount(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, now := newPrepaidAccount("agent"), time.Unix(0, 0)
		var reported, used, size int64
		var running, uncounted []int64 // reserved, estimated
		for range 200 {
			switch r.IntN(5) {
			case 0, 1:
				if n := r.Int64N(400); a.reserve(n, now) {
					running = append(running, n)
				}
			case 2:
				if len(running) > 0 {
					reserved, cost := running[0], r.Int64N(600)
					running = running[1:]
					a.finishCall(reserved, cost, now)
					uncounted = append(uncounted, cost)
				}
			case 3: // a refill or a settlement
				s := a.shortfall(r.Int64N(300))
				reported += s.spent
				if r.IntN(3) == 0 {
					a.apply(s, nil)
					size = 0
				} else {
					a.apply(s, &models.Reservation{ID: "r", Tokens: s.renewal, ExpiresAt: now.Add(time.Hour)})
					size = s.renewal
				}
			case 4:
				if len(uncounted) > 0 {
					cost := r.Int64N(600)
					a.recordUse(uncounted[0], cost)
					uncounted, used = uncounted[1:], used+cost
				}
			}
			var reserved int64
			for _, n := range running {
				reserved += n
			}
			var estimated int64
			for _, n := range uncounted {
				estimated += n
			}
			require.Equal(t, used, reported+a.spent, "all use is reported once, and no estimate")
			require.Equal(t, estimated, a.estimated)
			require.Equal(t, size, a.size)
			require.Equal(t, a.size-a.spent-estimated-reserved, a.available, "the rest is neither used nor reserved")
			require.Len(t, running, a.running)
		}
	}
}

// TestUncertainSettlementIsRepeated checks that a statement without a response is repeated unchanged,
// and later use is part of the next one.
func TestUncertainSettlementIsRepeated(t *testing.T) {
	t.Parallel()
	a, now := newPrepaidAccount("agent"), time.Unix(0, 0)
	a.apply(a.shortfall(10), &models.Reservation{ID: "r1", Tokens: 1000, ExpiresAt: now.Add(time.Hour)})
	spend := func(tokens int64) {
		require.True(t, a.reserve(tokens, now))
		a.finishCall(tokens, tokens, now)
		a.recordUse(tokens, tokens)
	}
	spend(100)
	first, due := a.dueStatement(now, time.Hour)
	require.True(t, due)
	a.markUncertain(first)
	spend(50)
	again, due := a.dueStatement(now, time.Hour)
	require.True(t, due)
	require.Equal(t, first, again)
	require.EqualValues(t, 100, a.shortfall(10).spent, "also in a refill")
	a.apply(again, &models.Reservation{ID: "r2", Tokens: 1000, ExpiresAt: now.Add(time.Hour)})
	rest, due := a.dueStatement(now, time.Hour)
	require.True(t, due)
	require.EqualValues(t, 50, rest.spent)
	require.Equal(t, "r2", rest.reservation)
}

// TestStatementKnowsEstimates checks that a statement records whether some use was only estimated,
// because a refusal of it may be wrong.
func TestStatementKnowsEstimates(t *testing.T) {
	t.Parallel()
	a, now := newPrepaidAccount("agent"), time.Unix(0, 0)
	a.apply(a.shortfall(1000), &models.Reservation{ID: "r1", Tokens: 1000, ExpiresAt: now.Add(time.Hour)})
	require.True(t, a.reserve(100, now))
	a.finishCall(100, 600, now)

	before := a.shortfall(1000)
	a.recordUse(600, 602)
	require.Zero(t, before.spent)
	require.True(t, before.estimated)

	after := a.shortfall(1000)
	require.EqualValues(t, 602, after.spent)
	require.False(t, after.estimated)
}
