package input_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/input"
)

func TestEventReader(t *testing.T) {
	t.Parallel()
	read := func(stream string) (out []input.Event) {
		r := input.NewEventReader(strings.NewReader(stream), 8)
		for {
			e, err := r.Next()
			out = append(out, e)
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				return out
			}
		}
	}

	t.Run("joins the lines of an event", func(t *testing.T) {
		t.Parallel()
		all := read("event: a\nid: 1\nretry:2\n: a comment\ndata: b\ndata:\ndata:c\r\n\r\ndata:\n\n")
		require.Equal(t, []input.Event{
			{Name: []byte("a"), ID: []byte("1"), Retry: []byte("2"), Data: []byte("b\n\nc")}, {Data: []byte{}}, {},
		}, all)
	})

	t.Run("returns an event without its end with the error", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []input.Event{{Data: []byte("a")}}, read("data: a"))
	})

	t.Run("keeps the ends of data over the limit and continues", func(t *testing.T) {
		t.Parallel()
		for _, long := range []string{"data: 123456789\n\n", "data: 12345\ndata: 6789\n\n"} {
			all := read(long + "data: next\n\n")
			require.Nil(t, all[0].Data)
			require.Equal(t, "123456789", strings.TrimSpace(string(all[0].Long.Head)))
			require.Equal(t, "next", string(all[1].Data))
		}
	})
}
