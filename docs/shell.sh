# Variables and functions that the examples use. Run in bash, in the folder of the repository: . docs/shell.sh
DATA=$(realpath "${PILOTHOUSE_DATA:-.local}")
credential() { node -p "require('$DATA/credentials.json').$1"; }
BASE=$(credential base_url) TOKEN=$(credential access_token) ORG=$(credential organization_slug)
WORK=$(mktemp -d)
export SUPABASE_PROFILE=$DATA/supabase-profile.yaml SUPABASE_ACCESS_TOKEN=$TOKEN

# The supabase CLI, which npm loads at the first call.
supabase() { npx -y supabase@3.1.0 "$@"; }

# Calls the management API as the owner.
call() { curl -sS --fail-with-body -H "authorization: Bearer $TOKEN" -H 'content-type: application/json' "$@"; echo; }

# Reads JSON from standard input and prints an expression over `body`. Without a value, prints the body, which may say why.
json() {
  node -e "const body = JSON.parse(fs.readFileSync(0)), value = $1
    if (value === undefined) { console.error(body); process.exit(1) }
    console.log(value)"
}

# Repeats a command until it succeeds, for two minutes at most.
wait_until() { for _ in $(seq 240); do if "$@" > /dev/null 2>&1; then return; fi; sleep 0.5; done; echo "gave up: $*" >&2; return 1; }

is_healthy() { call $BASE/v1/projects/$1 | grep -q ACTIVE_HEALTHY; }

# Creates a project, waits for its database and prints its ref.
new_project() {
  local ref
  ref=$(call $BASE/v1/projects -d '{"name":"'$1'","organization_slug":"'$ORG'","db_pass":"correct-horse"}' | json body.ref) || return
  wait_until is_healthy $ref
  echo $ref
}

# Prints a key of the project $REF: key_of anon, key_of service_role.
key_of() { call "$BASE/v1/projects/$REF/api-keys?reveal=true" | json "body.find(({ name }) => name === '$1').api_key"; }
