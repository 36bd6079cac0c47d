package genesis

import "strconv"

// Remember adds n events to those that are remembered, and Remembered is their number.
func (p *Protocol) Remember(n int) {
	for i := range n {
		p.fleeting.Add([2]string{"filler", strconv.Itoa(i)}, "")
	}
}

func (p *Protocol) Remembered() int { return p.fleeting.Len() }
