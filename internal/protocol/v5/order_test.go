package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/protocol"
	v5 "comet/internal/protocol/v5"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	alone, report := protocol.Order{}, protocol.Order{Key: "T1S5", Blind: true}
	for line, want := range map[string]protocol.Order{
		"M1|W1>O1|R|-|P1|N|-|0|-|-|call=dig":              {Independent: true},
		"M1|W1>O1|R|-|P1|N|-|0|S0|-|call=dig":             {Independent: true},
		"M1|W1>O1|R|T1|P1|N|-|0|-|-|call=dig":             alone,
		"M1|W1>O1|R|-|P1|N|-|0|S5|-|call=dig":             {Key: "S5", Atomic: true, Blind: true},
		"M1|W1>O1|R|-|P1|N|-|0|S5|-|call=dig;src=#REF:T1": alone,
		"M1|W1>O1|R|T2|P1|N|-|0|S5|-|call=dig":            alone,
		"M1|W1>O1|A|T1|P1|R|-|0|S5|-|-":                   {Key: "T1S5", Atomic: true, Blind: true},
		"M1|W1>O1|U|T1|P1|R|-|0|S5|-|progress=1%":         report,
		"M1|W1>O1|S|T1|P1|D|-|1|S5|-|a|b":                 report,
		"M1|W1>O1|E|T1|P1|F|E99|0|S5|-|-":                 report,
		"M1|W1>O1|C|T1|P1|R|-|0|S5|-|question=a":          report,
		"M1|W1>W2|X|T1|P1|R|-|0|S5|-|call=dig":            {Key: "T1S5"},
		"M1|W1>O1|Q|T1|-|-|-|0|S5|-|-":                    {Key: "T1S5"},
		"M1|W1>O1|Q|T1|-|-|-|0|S5|-|ref=T1:raw;page=2":    {Key: "T1S5"},
		"M1|W1>O1|Q|T1|-|-|-|0|S5|-|ref=T2:raw":           alone,
		"M1|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W*":            alone,
		"M1|W1>O1|S|T0|-|-|-|0|S5|-|-":                    alone,
		"M1|W1>O1|S|T1|-|-|-|0|-|-|-":                     alone,
		"M1|W1>O1|J|T1|-|-|-|0|S5|-|-":                    alone,
		"M1|W1>O1|H|T1|-|-|-|0|S5|-|-":                    alone,
		"M1|W1>O1|?|T1|-|-|-|0|S5|-|-":                    alone,
		"M1|W1>O1|S|T1|P1|D|-|n=1":                        alone, // V4
		"nonsense":                                        alone,
		"":                                                alone,
	} {
		require.Equal(t, want, new(v5.Protocol).Order([]byte(line)), line)
	}
}
