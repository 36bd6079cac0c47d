// Package places counts who is in where only so many may be: so many in all, and so many
// of one kind, so that one cannot take what is there for everybody. It knows neither what
// the places are nor what is said to who finds none; doors and core have both of their own.
package places

import "sync"

// Room is whether there is a place.
type Room int

// Free has a place; Full has none for anybody, and FullForOne none for the one that asks.
const (
	Free Room = iota
	Full
	FullForOne
)

// Places is safe for concurrent use.
type Places struct {
	most, each int

	mu  sync.Mutex
	all int
	of  map[string]int
}

// New returns places of which most may be taken at a time, and each by one.
func New(most, each int) *Places {
	return &Places{most: most, each: each, of: map[string]int{}}
}

// Take takes a place for somebody, which release gives back: once, by whoever took it.
// Where the room is not Free nothing is taken, and release is nil.
func (p *Places) Take(who string) (release func(), room Room) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.most {
		return nil, Full
	}
	if p.of[who] >= p.each {
		return nil, FullForOne
	}
	p.all++
	p.of[who]++
	return func() { p.release(who) }, Free
}

func (p *Places) release(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[who]--; p.of[who] == 0 {
		delete(p.of, who)
	}
}
