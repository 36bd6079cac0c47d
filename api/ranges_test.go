package api

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestByteRanges(t *testing.T) {
	t.Parallel()
	const size = 10
	for header, want := range map[string]struct {
		from, to int64
		partial  bool
	}{
		"bytes=0-3":                     {0, 4, true},
		"bytes=9-9":                     {9, 10, true},
		"bytes=3-":                      {3, 10, true},
		"bytes=3-99999999999999999999":  {3, 10, true},
		"Bytes = 3-4":                   {3, 5, true},
		"bytes=-3":                      {7, 10, true},
		"bytes=-99":                     {0, 10, true},
		"bytes=10-":                     {10, 10, true}, // which is not there
		"bytes=10-12":                   {10, 10, true},
		"bytes=99999999999999999999-":   {1<<63 - 1, 10, true},
		"bytes=-0":                      {10, 10, true},
		"":                              {0, 10, false},
		"bytes=4-3":                     {0, 10, false}, // is left aside, like the rest
		"bytes=":                        {0, 10, false},
		"bytes=-":                       {0, 10, false},
		"bytes=--1":                     {0, 10, false},
		"bytes=a-b":                     {0, 10, false},
		"bytes=1":                       {0, 10, false},
		"bytes=0-1,3-4":                 {0, 10, false},
		"bytes=+1-2":                    {0, 10, false},
		"lines=0-3":                     {0, 10, false},
		"bytes=0x1-2":                   {0, 10, false},
		"bytes=0-3; q=1":                {0, 10, false},
		"bytes=1-9223372036854775807":   {1, 10, true},
		"bytes=0-18446744073709551616 ": {0, 10, true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Range", header)
		from, to, partial := byteRange(r, size)
		require.Equal(t, want.partial, partial, header)
		require.Equal(t, want.from, from, header)
		require.Equal(t, want.to, to, header)
		r.Header.Set("If-Range", `"x"`)
		_, _, partial = byteRange(r, size)
		require.False(t, partial, "no validator is known")
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header["Range"] = []string{"bytes=0-1", "bytes=2-3"}
	_, _, partial := byteRange(r, size)
	require.False(t, partial)
	r.Header["Range"] = []string{"bytes=-3"}
	from, to, partial := byteRange(r, 0)
	require.Equal(t, []any{int64(0), int64(0), true}, []any{from, to, partial}, "there are no last bytes of nothing")
}
