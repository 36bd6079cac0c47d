package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// TestReadingDoesNotAllocate: a line is read, and its DATA walked, in place. It does
// not run in parallel, for what others allocate would be counted too.
func TestReadingDoesNotAllocate(t *testing.T) {
	lines := []string{
		"M3|W1>O1|S|T1|P1|D|-|0|S1|B200|results=5;top1=OpenAI GPT-5;top2=Claude 4;src=#REF:T1:raw",
		"M1|O1>User|D|T1|P1|R|-|0|S1|-|question=Quel format de rapport?;opt1=résumé court;opt2=rapport détaillé;opt3=données brutes",
		"M1|W99.123>W*|B|-|-|-|E31|5|S0abc|B9999|x;auth=S1:00aa:01234567",
	}
	for _, line := range lines {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := v5.Parse(line); err != nil {
				panic(err)
			}
		}), line)
	}
	d := v5.Data(`call=web_search;params=query:"AI, patterns",max:3;caps=a,"b,c";agents=W1;retry=1;max=2;pid=M5;src=#REF:T1:raw`)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		n := 0
		for p := range d.Pairs() {
			n += len(p.Value())
			for range p.List() {
				n++
			}
		}
		for p := range d.Params() {
			n += len(p.Name)
		}
		for p := range d.Arguments() {
			n += len(p.Value)
		}
		value, _ := d.Get("src")
		if r, err := v5.ParseRef(value); err != nil || n == 0 || r.Field != "raw" {
			panic(err)
		}
		if r, err := d.Retry(); err != nil || r.Max != 2 {
			panic(err)
		}
	}))
	m := parse(t, lines[0])
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if _, err := v5.Format(m); err != nil {
			panic(err)
		}
	}), 1.0)
}
