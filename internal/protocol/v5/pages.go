package v5

import (
	"context"
	"encoding/base64"
	"strconv"

	lru "github.com/hashicorp/golang-lru/v2"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// The bounds of the pages that are kept: of so many texts, of those that have more than
// so many bytes. None is longer than maxFetched.
const (
	keptTexts = 4
	longText  = 4 << 10
)

// texts keeps the long texts that are being fetched, so that one of thousands of pages is
// neither read from the database nor divided for each of them. It is safe for concurrent
// use.
type texts struct {
	all *lru.Cache[string, pages]
}

func newTexts() texts {
	all, _ := lru.New[string, pages](keptTexts) // fails only for a size that is not positive
	return texts{all}
}

// pages are the pages of a text, which are Base64 unless DATA can say each.
type pages struct {
	all   []string
	plain bool
}

func pagesOf(text string) pages {
	p := pages{plain: isPlain(text)}
	if p.plain {
		p.all = split(text)
	} else {
		for rest := text; len(rest) > 0; rest = rest[min(pageBytes, len(rest)):] {
			p.all = append(p.all, rest[:min(pageBytes, len(rest))])
		}
	}
	p.all = append(p.all, []string{""}[min(len(p.all), 1):]...) // an empty text has one page
	return p
}

// page writes one of them, from 1.
func (p pages) page(n int) (*wire.Writer, error) {
	if n > len(p.all) {
		return nil, refuse(wire.E10, "", "page %d is behind the last one, %d", n, len(p.all))
	}
	w := new(wire.Writer).Number("page", int64(n)).Number("of", int64(len(p.all)))
	if p.plain {
		return w.Quoted("text", p.all[n-1]), nil
	}
	return w.Add("enc", "base64").Add("text", base64.StdEncoding.EncodeToString([]byte(p.all[n-1]))), nil
}

// storedOnce is stored for a text of which another page may be asked for soon.
func (d *Protocol) storedOnce(ctx context.Context, t models.Task, name wire.Task, field string) (pages, error) {
	// What a task was given never changes, the rest only until it has ended.
	keep := field == "params" || t.State.Ended()
	key := t.ID + "/" + strconv.FormatInt(t.Version, 10) + "/" + field
	if all, ok := d.texts.all.Get(key); ok && keep {
		return all, nil
	}
	text, err := d.stored(ctx, t, name, field)
	if err != nil {
		return pages{}, err
	}
	all := pagesOf(text)
	if keep && len(text) > longText {
		d.texts.all.Add(key, all)
	}
	return all, nil
}
