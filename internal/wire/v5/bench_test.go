package v5_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
)

// sameInJSON is a message as JSON.
type sameInJSON struct {
	Number  int    `json:"message"`
	From    string `json:"from"`
	To      string `json:"to"`
	Type    string `json:"type"`
	Task    string `json:"task"`
	Prio    string `json:"priority"`
	State   string `json:"state"`
	Err     string `json:"error,omitempty"`
	Depth   int    `json:"depth"`
	Context string `json:"context"`
	Budget  string `json:"budget"`
	Data    string `json:"data"`
}

func inJSON(tb testing.TB, m v5.Message) []byte {
	tb.Helper()
	data, err := json.Marshal(sameInJSON{
		Number: m.Number, From: m.From.String(), To: m.To.String(), Type: m.Type.String(), Task: m.Task.String(), Prio: m.Priority.String(),
		State: m.State.String(), Err: string(m.Err), Depth: m.Depth, Context: m.Context, Budget: m.Budget.String(), Data: string(m.Data),
	})
	require.NoError(tb, err)
	return data
}

// BenchmarkParse parses and checks a message, and for comparison only parses the same JSON.
func BenchmarkParse(b *testing.B) {
	for name, line := range lines() {
		b.Run(name+"/pipe", func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v5.Parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/json", func(b *testing.B) {
			data := inJSON(b, parse(b, line))
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				var same sameInJSON
				if err := json.Unmarshal(data, &same); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFormat(b *testing.B) {
	for name, line := range lines() {
		b.Run(name, func(b *testing.B) {
			m := parse(b, line)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Format(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPairs(b *testing.B) {
	for name, line := range lines() {
		b.Run(name, func(b *testing.B) {
			data := parse(b, line).Data
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for p := range data.Pairs() {
					n += len(p.Value())
				}
				if n == 0 {
					b.Fatal("nothing was read")
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	key := []byte("the shared key")
	line, err := v5.Auth{Session: "S1", Nonce: "00aa"}.Sign(good, key)
	require.NoError(b, err)
	for b.Loop() {
		if err := v5.Verify(line, key); err != nil {
			b.Fatal(err)
		}
	}
}

// lines are three messages of the document: short, with a reference, and long with accents.
func lines() map[string]string {
	return map[string]string{
		"request": "M1|O1>W1|R|T1|P1|N|-|0|S1|B500|call=web_search;query=latest AI news 2024",
		"success": "M3|W1>O1|S|T1|P1|D|-|0|S1|B200|results=5;top1=OpenAI GPT-5;top2=Claude 4;src=#REF:T1:raw",
		"accents": "M1|O1>User|D|T1|P1|R|-|0|S1|-|question=Quel format de rapport?;opt1=résumé court;opt2=rapport détaillé;opt3=données brutes",
	}
}

// TestParseDoesNotAllocate: a message is parsed, and its DATA read, in place. It does not run in
// parallel, because the allocations of other tests would count.
func TestParseDoesNotAllocate(t *testing.T) {
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
		for name := range d.Params() {
			n += len(name)
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
		if _, err := m.Format(); err != nil {
			panic(err)
		}
	}), 1.0)
}
