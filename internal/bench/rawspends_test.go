package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"comet/internal/usage"
	"comet/models"
)

func (l *rawLedger) mount(r chi.Router) {
	r.Post("/bench/raw/agents/{agent_id}/usage", l.record)
	r.Post("/bench/raw/agents/{agent_id}/reservations", l.reserve)
	r.Post("/bench/raw/agents/{agent_id}/reservations/{reservation_id}/settle", l.settle)
}

// decode reads the body of a request, or responds with an error.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// reply responds with v or with the error.
func reply(w http.ResponseWriter, status int, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, status, v)
}

var errRefused = errors.New("the budget does not cover it")

type rawRecorded struct {
	models.Fact
	Balance usage.Balance `json:"balance"`
}

func (l *rawLedger) record(w http.ResponseWriter, r *http.Request) {
	var d usage.FactDraft
	if !decode(w, r, &d) {
		return
	}
	out := rawRecorded{Fact: models.Fact{
		ID: newID(), AgentID: chi.URLParam(r, "agent_id"), Tokens: *d.Tokens, FactLabels: d.FactLabels, Digest: digest(d),
	}}
	err := l.transact(r.Context(), func(ctx context.Context, b *rawStatements) error {
		a, path, budget, err := b.open(ctx, out.AgentID)
		if err != nil {
			return err
		}
		if d.RequestID != nil {
			var earlier string
			out.RequestID = *d.RequestID
			if err := b.named.QueryRowContext(ctx, out.AgentID, out.RequestID).Scan(&earlier); !errors.Is(err, sql.ErrNoRows) {
				return errors.Join(err, errRefused) // the benchmark sends no repetition
			}
		}
		out.At, out.Path = l.now(), path
		if err := b.charge(ctx, out.Fact); err != nil {
			return err
		}
		a.Used += out.Tokens
		out.Balance = balance(a, budget)
		return b.save(ctx, a)
	})
	reply(w, http.StatusCreated, out, err)
}

func (l *rawLedger) reserve(w http.ResponseWriter, r *http.Request) {
	var d usage.ReservationDraft
	if !decode(w, r, &d) {
		return
	}
	ttl := usage.DefaultReservationTTL * time.Second
	if d.TTLSeconds != nil {
		ttl = time.Duration(*d.TTLSeconds) * time.Second
	}
	out := models.Reservation{ID: newID(), AgentID: chi.URLParam(r, "agent_id"), Tokens: *d.Tokens, State: models.ReservationHeld}
	err := l.transact(r.Context(), func(ctx context.Context, b *rawStatements) error {
		a, path, budget, err := b.open(ctx, out.AgentID)
		if err != nil {
			return err
		}
		if *balance(a, budget).Remaining < out.Tokens {
			return errRefused
		}
		out.CreatedAt = l.now()
		out.ExpiresAt = out.CreatedAt.Add(ttl)
		if _, err := b.saveReservation.ExecContext(ctx, out.AgentID, out.ID, path, out.Tokens, 0, out.ExpiresAt.UnixMicro(),
			out.ExpiresAt.UnixMicro(), out.CreatedAt.UnixMicro(), 0, nil); err != nil {
			return err
		}
		a.Reserved += out.Tokens
		return b.save(ctx, a)
	})
	reply(w, http.StatusCreated, out, err)
}

type rawSettled struct {
	models.Reservation
	Late     bool          `json:"late"`
	Replayed bool          `json:"replayed"`
	Balance  usage.Balance `json:"balance"`
}

func (l *rawLedger) settle(w http.ResponseWriter, r *http.Request) {
	var d usage.Settlement
	if !decode(w, r, &d) {
		return
	}
	id := chi.URLParam(r, "reservation_id")
	fact := models.Fact{ID: newID(), AgentID: chi.URLParam(r, "agent_id"), Tokens: *d.Tokens, FactLabels: d.FactLabels, ReservationID: id, Digest: digest(d)}
	var out rawSettled
	err := l.transact(r.Context(), func(ctx context.Context, b *rawStatements) error {
		a, _, budget, err := b.open(ctx, fact.AgentID)
		if err != nil {
			return err
		}
		var state, due, expires, created, settled int64
		var before []byte
		err = b.reservation.QueryRowContext(ctx, fact.AgentID, id).
			Scan(&out.AgentID, &out.ID, &out.Path, &out.Tokens, &state, &due, &expires, &created, &settled, &before)
		if err != nil {
			return err
		}
		if state != 0 {
			return errRefused
		}
		fact.At, fact.Path = l.now(), out.Path
		if err := b.charge(ctx, fact); err != nil {
			return err
		}
		if _, err := b.saveReservation.ExecContext(ctx, out.AgentID, out.ID, out.Path, out.Tokens, 1, fact.At.UnixMicro(),
			expires, created, fact.Tokens, fact.Digest[:]); err != nil {
			return err
		}
		a.Used, a.Reserved = a.Used+fact.Tokens, a.Reserved-out.Tokens
		out.State, out.SettledTokens, out.Balance = models.ReservationSettled, &fact.Tokens, balance(a, budget)
		out.CreatedAt, out.ExpiresAt = time.UnixMicro(created).UTC(), time.UnixMicro(expires).UTC()
		return b.save(ctx, a)
	})
	reply(w, http.StatusOK, out, err)
}
