package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

// TestUsageAtItsBounds sends what is just allowed: it is recorded as it was sent.
func TestUsageAtItsBounds(t *testing.T) {
	t.Parallel()
	robots := strings.Repeat("🤖", 128)
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		for name, body := range map[string]string{
			"a token":                  `{"tokens":1}`,
			"10^12 tokens":             `{"tokens":1000000000000}`,
			"the longest texts":        fmt.Sprintf(`{"tokens":1,"task_id":%q,"model":%q,"kind":%q,"request_id":%q}`, robots, robots, robots[:256], robots),
			"texts with what is odd":   `{"tokens":1,"task_id":" a ","model":"<script>'\"\\","kind":"\ud83e\udd16 é","request_id":"%s/../nova"}`,
			"empty texts, not said":    `{"tokens":1,"task_id":"","model":"","kind":"","request_id":null}`,
			"no duration":              `{"tokens":1,"outcome":"cancelled","duration_ms":null}`,
			"a duration of 30 days":    `{"tokens":1,"outcome":"timeout","duration_ms":2592000000,"session_id":"s"}`,
			"a duration of nothing":    `{"tokens":1,"outcome":"failed","duration_ms":0}`,
			"a request_id of a number": `{"tokens":1,"request_id":"1"}`,
		} {
			var sent, kept models.Fact
			got := h.do(t, "POST", "/api/v1/agents/orch-social/usage", body)
			got.decode(t, http.StatusCreated, &kept)
			response{status: 201, body: []byte(body)}.decode(t, 201, &sent)
			require.Equal(t, []any{sent.Tokens, sent.FactLabels, sent.RequestID}, []any{kept.Tokens, kept.FactLabels, kept.RequestID}, name)
		}

		many := `{"facts":[` + strings.Repeat(`{"tokens":1000000000},`, 999) + `{"tokens":1000000000}]}`
		var answer struct{ Recorded, Replayed int }
		h.do(t, "POST", "/api/v1/agents/orch-scholar/usage", many).decode(t, http.StatusCreated, &answer)
		require.Equal(t, 1000, answer.Recorded)
		u, err := h.ledger.Usage(t.Context(), "orch-scholar")
		require.NoError(t, err)
		require.EqualValues(t, 1_000_000_000_000, u.UsedToday)
	})
}

// TestUsageOfADayIsLimited: the sums of many agents stay numbers that JSON readers and
// databases can hold.
func TestUsageOfADayIsLimited(t *testing.T) {
	t.Parallel()
	most := `{"facts":[` + strings.Repeat(`{"tokens":1000000000000},`, 999) + `{"tokens":1000000000000}]}`
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/orch-scholar/usage", most).status)
		h.do(t, "POST", "/api/v1/agents/orch-scholar/usage", `{"tokens":1}`).problem(t, http.StatusUnprocessableEntity, errs.LimitReached)
		u, err := h.ledger.Usage(t.Context(), "orch-scholar")
		require.NoError(t, err)
		require.EqualValues(t, usage.MaxTokensADay, u.UsedToday)
	})
}

// TestReservationPagesAreComplete walks the list by cursor and by Link, in every
// state.
func TestReservationPagesAreComplete(t *testing.T) {
	t.Parallel()
	type page struct {
		Reservations []models.Reservation `json:"reservations"`
		Next         string               `json:"next_cursor"`
	}
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		const target = "/api/v1/agents/orch-social/reservations"
		var made []string
		states := map[models.ReservationState]int{}
		for i := range 23 {
			got := h.do(t, "POST", target, fmt.Sprintf(`{"tokens":%d}`, i+1))
			require.Equal(t, http.StatusCreated, got.status)
			at := got.header.Get("Location")
			made = append(made, at[strings.LastIndexByte(at, '/')+1:])
			switch i % 3 {
			case 0:
				states[models.ReservationSettled]++
				require.Equal(t, http.StatusOK, h.do(t, "POST", at+"/settle", `{"tokens":1}`).status)
			case 1:
				states[models.ReservationReleased]++
				require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", at, "").status)
			default:
				states[models.ReservationHeld]++
			}
		}
		slices.Reverse(made)
		var byCursor, byLink []string
		for cursor := ""; ; {
			var p page
			h.do(t, "GET", target+"?limit=5"+cursor, "").decode(t, http.StatusOK, &p)
			byCursor = append(byCursor, idsOf(p.Reservations)...)
			if p.Next == "" {
				break
			}
			cursor = "&cursor=" + p.Next
		}
		for next := target + "?limit=7"; next != ""; {
			var p page
			got := h.do(t, "GET", next, "")
			got.decode(t, http.StatusOK, &p)
			byLink = append(byLink, idsOf(p.Reservations)...)
			next, _, _ = strings.Cut(strings.TrimPrefix(got.header.Get("Link"), "<"), `>; rel="next"`)
		}
		require.Equal(t, made, byCursor)
		require.Equal(t, made, byLink)
		for state, n := range states {
			var found []models.Reservation
			for cursor := ""; ; {
				var p page
				h.do(t, "GET", target+"?limit=3&state="+string(state)+cursor, "").decode(t, http.StatusOK, &p)
				found = append(found, p.Reservations...)
				if p.Next == "" {
					break
				}
				cursor = "&cursor=" + p.Next
			}
			require.Len(t, found, n, state)
			for _, r := range found {
				require.Equal(t, state, r.State)
			}
		}
	})
}

func idsOf(list []models.Reservation) []string {
	ids := make([]string, len(list))
	for i, r := range list {
		ids[i] = r.ID
	}
	return ids
}
