package auth_test

import (
	"net/http"
	"testing"
)

func TestWhoIsRefusedCannotTellWhatIsThere(t *testing.T) {
	a := open(t)
	first := call(a, "GET", "/secret")
	for name, w := range map[string]string{
		"what is not there":  call(a, "GET", "/nowhere").Body.String(),
		"a run":              call(a, "GET", "/api/v1/runs/no-such-run").Body.String(),
		"with a wrong token": call(a, "GET", "/secret", with("Authorization", "Bearer wrong")).Body.String(),
		"with two":           call(a, "GET", "/secret", bearer, bearer).Body.String(),
		"with a bad cookie":  call(a, "GET", "/secret", sends(&http.Cookie{Name: "tallyman", Value: "x.9.y"})).Body.String(),
		"by another method":  call(a, "DELETE", "/secret").Body.String(),
	} {
		if w != first.Body.String() {
			t.Errorf("%s: %s, elsewhere %s", name, w, first.Body)
		}
	}
}
