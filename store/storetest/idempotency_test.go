package storetest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// once is a request with that key and body, whose answer shows its result.
func once(principal, key, body string) *models.Idempotency {
	return &models.Idempotency{
		Principal: principal, Key: key, RequestHash: sha256.Sum256([]byte(body)),
		Render: func(result any) (models.StoredResponse, error) {
			return models.StoredResponse{Status: 201, Header: map[string]string{"Location": "/é"}, Body: fmt.Append(nil, result)}, nil
		},
	}
}

// request runs the request; its effect is an event, its result the given word.
func request(db *storetest.DB, o *models.Idempotency, result string) error {
	return db.Write(context.Background(), func(tx *store.Tx) error {
		return tx.Idempotent(o, func() (any, error) { return result, tx.Events().Emit(events.AgentCreated, result, nil) })
	})
}

// effects counts the events there are.
func effects(t *testing.T, db *storetest.DB) int {
	t.Helper()
	numberAll(t, db)
	n, err := db.Events(t.Context()).LastPosition()
	require.NoError(t, err)
	return int(n)
}

func TestOnce(t *testing.T) {
	t.Parallel()

	rule(t, "RunsTheFirstRequestAndReplaysItsResponse", func(t *testing.T, db *storetest.DB) {
		o := once("token", "key", "body")
		require.NoError(t, request(db, o, "first"))
		require.Nil(t, o.Replay)
		for range 2 {
			require.NoError(t, request(db, o, "second"))
			require.Equal(t, &models.StoredResponse{Status: 201, Header: map[string]string{"Location": "/é"}, Body: []byte("first")}, o.Replay)
		}
		require.Equal(t, 1, effects(t, db))
	})

	rule(t, "RefusesTheKeyWithAnotherRequest", func(t *testing.T, db *storetest.DB) {
		require.NoError(t, request(db, once("token", "key", "body"), "first"))
		other := once("token", "key", "other body")
		require.Equal(t, errs.IdempotencyKeyReused, errs.CodeOf(request(db, other, "second")))
		require.Nil(t, other.Replay)
		require.Equal(t, 1, effects(t, db))
	})

	rule(t, "KeepsPrincipalsAndKeysApart", func(t *testing.T, db *storetest.DB) {
		for i, o := range []*models.Idempotency{once("token", "key", "1"), once("token-2", "key", "2"), once("token", "key-2", "3"), nil, nil} {
			require.NoError(t, request(db, o, fmt.Sprint(i)))
		}
		require.Equal(t, 5, effects(t, db))
	})

	rule(t, "DropsAResponseAfter24Hours", func(t *testing.T, db *storetest.DB) {
		require.NoError(t, request(db, once("token", "key", "body"), "first"))
		db.Clock.Advance(store.IdempotencyRetention)
		o := once("token", "key", "body")
		require.NoError(t, request(db, o, "second"))
		require.NotNil(t, o.Replay, "24 hours are still kept")
		db.Clock.Advance(time.Microsecond)
		require.NoError(t, request(db, once("token", "key", "other body"), "third"), "now the key is free")
		require.Equal(t, 2, effects(t, db))
	})

	rule(t, "AFailedRequestStoresNothing", func(t *testing.T, db *storetest.DB) {
		boom := errors.New("boom")
		o := once("token", "key", "body")
		for name, fail := range map[string]func(*store.Tx) (any, error){
			"in the verb":      func(tx *store.Tx) (any, error) { return nil, errors.Join(tx.Events().Emit("x", "x", nil), boom) },
			"in the rendering": func(*store.Tx) (any, error) { return boom, nil },
		} {
			render := o.Render
			o.Render = func(result any) (models.StoredResponse, error) {
				if err, ok := result.(error); ok {
					return models.StoredResponse{}, err
				}
				return render(result)
			}
			err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Idempotent(o, func() (any, error) { return fail(tx) }) })
			require.ErrorIs(t, err, boom, name)
		}
		require.NoError(t, request(db, o, "second try"))
		require.Nil(t, o.Replay, "it ran")
		require.Equal(t, 1, effects(t, db))
	})

	rule(t, "ConcurrentRequestsWithOneKeyHaveOneEffect", func(t *testing.T, db *storetest.DB) {
		const callers = 8
		var replays, ran atomic.Int32
		failures := make(chan error, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				o := once("token", "key", "body")
				if err := request(db, o, fmt.Sprint(i)); err != nil {
					failures <- err
				} else if o.Replay != nil {
					replays.Add(1)
				} else {
					ran.Add(1)
				}
			})
		}
		wg.Wait()
		require.Empty(t, failures)
		require.EqualValues(t, 1, ran.Load())
		require.EqualValues(t, callers-1, replays.Load())
		require.Equal(t, 1, effects(t, db))
	})

	rule(t, "AWaitingRequestRunsAfterAFailedOne", func(t *testing.T, db *storetest.DB) {
		boom := errors.New("boom")
		started, results := make(chan struct{}), make(chan error, 2)
		go func() {
			var first sync.Once
			results <- db.Write(context.Background(), func(tx *store.Tx) error {
				return tx.Idempotent(once("token", "key", "body"), func() (any, error) {
					first.Do(func() { close(started) })
					return nil, boom
				})
			})
		}()
		<-started
		go func() { results <- request(db, once("token", "key", "body"), "second") }()
		require.ErrorIs(t, errors.Join(<-results, <-results), boom)
		require.Equal(t, 1, effects(t, db))
	})
}

func TestPurgeStoredResponses(t *testing.T) {
	t.Parallel()
	rule(t, "DeletesTheOldestUpToTheLimit", func(t *testing.T, db *storetest.DB) {
		start := db.Now()
		for i := range 5 {
			require.NoError(t, request(db, once("token", fmt.Sprint(i), "body"), "x"))
			db.Clock.Advance(time.Second)
		}
		for _, want := range []int64{3, 1, 0} {
			write(t, db, func(tx *store.Tx) error {
				n, err := tx.PurgeStoredResponses(start.Add(4*time.Second), 3)
				require.Equal(t, want, n)
				return err
			})
		}
		o := once("token", "4", "body")
		require.NoError(t, request(db, o, "again"))
		require.NotNil(t, o.Replay, "the newest is kept")
	})
}
