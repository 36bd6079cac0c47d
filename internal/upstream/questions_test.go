package upstream

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// TestUnassignedQuestions checks which request gets a question that does not name its own.
func TestUnassignedQuestions(t *testing.T) {
	t.Parallel()
	type assigned struct {
		to     *call
		reason string
	}
	bubble := func(t *testing.T, test func(t *testing.T, begin func() *call, ask func() <-chan assigned)) {
		synctest.Test(t, func(t *testing.T) {
			s := &session{}
			begin := func() *call {
				c := &call{session: s, cancel: func() {}, timer: time.NewTimer(time.Hour)}
				require.True(t, s.calls.add(c))
				return c
			}
			ask := func() <-chan assigned {
				out, last := make(chan assigned, 1), float64(s.calls.last)
				go func() {
					to, reason := s.calls.ofQuestion(t.Context(), last)
					out <- assigned{to, reason}
				}()
				synctest.Wait()
				return out
			}
			test(t, begin, ask)
		})
	}
	wait := func(t *testing.T, asked <-chan assigned) {
		t.Helper()
		synctest.Wait()
		require.Empty(t, asked)
	}

	t.Run("one waits until the others have been answered", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T, begin func() *call, ask func() <-chan assigned) {
			slow, asking := begin(), begin()
			one := ask()
			later := begin()
			wait(t, one)
			two := ask()
			slow.finish(false, true)
			require.Equal(t, assigned{to: asking}, <-one)
			require.Equal(t, assigned{to: later}, <-two)
			three := ask() // all of them have a question
			require.Contains(t, (<-three).reason, "no request is running that can ask")
			later.endQuestion()
			require.Equal(t, assigned{to: later}, <-ask())
		})
	})

	t.Run("one is declined if its request may have been cancelled", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T, begin func() *call, ask func() <-chan assigned) {
			held := begin()
			begin()
			one := ask()
			held.finish(false, false)
			require.Contains(t, (<-one).reason, "was cancelled")
		})
	})

	t.Run("one of two that cannot be told apart is declined, and its request continues", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T, begin func() *call, ask func() <-chan assigned) {
			a, b := begin(), begin()
			one := ask()
			require.Contains(t, (<-ask()).reason, "several requests ask at the same time")
			wait(t, one)
			a.finish(false, true)
			require.Equal(t, assigned{to: b}, <-one)
		})
	})

	t.Run("one with a stream belongs to its call", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T, begin func() *call, _ func() <-chan assigned) {
			a := begin()
			b := begin()
			for _, c := range []*call{b, b, a} {
				to, reason := a.session.calls.ofQuestion(context.Background(), c.token)
				require.Equal(t, c, to, reason)
			}
			for range maxQuestions - 1 {
				_, _ = a.session.calls.ofQuestion(context.Background(), a.token)
			}
			to, reason := a.session.calls.ofQuestion(context.Background(), a.token)
			require.Nil(t, to)
			require.Contains(t, reason, "too many questions")
			a.finish(false, true)
			_, reason = a.session.calls.ofQuestion(context.Background(), a.token)
			require.Contains(t, reason, "no request is running")
		})
	})
}

// TestQuestionsWithoutReply checks the error of a request whose caller does not reply to a question.
func TestQuestionsWithoutReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &session{launch: &resolvedServer{}, life: t.Context()}
		s.launch.ID = "a"
		c, _, err := s.begin(t.Context(), &CallOptions{
			Can: Capabilities{Elicitation: &mcp.ElicitationCapabilities{}},
			Ask: func(ctx context.Context, _ mcp.InputRequestMap) (mcp.InputResponseMap, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		require.NoError(t, err)
		defer c.finish(false, true)
		began := time.Now()
		_, err = c.ask(t.Context(), mcp.InputRequestMap{"q": &mcp.ElicitParams{Message: "sure?"}})
		require.Equal(t, AskTimeout, time.Since(began))
		require.ErrorIs(t, err, errNoReply)
		require.False(t, c.expired.Load(), "the timeout of the request is paused")
		failed := errs.From(s.describeFailure(t.Context(), c, "the tool x", fmt.Errorf("its question could not be passed on: %w", err)))
		require.Equal(t, `upstream "a" asked a question for the tool x: the caller did not reply within 5 minutes`, failed.Detail)
		require.Equal(t, ReasonTimeout, failed.Meta["reason"])
	})
}
