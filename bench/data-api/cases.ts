/** The tables that are measured: 1,000 authors with 10 books each, and 3 reviews of each book. */
export const SCHEMA = `
  create table authors (id int primary key, name text not null);
  create table books (id int primary key, title text not null, pages int not null, author_id int not null references authors);
  create table reviews (id int primary key, stars int not null, note text not null, book_id int not null references books);
  create table events (id bigint generated always as identity primary key, kind text not null, at timestamptz default now(), data jsonb);
  create index on books (author_id);
  create index on reviews (book_id);
  create function pages_of(author int) returns bigint language sql stable as 'select sum(pages) from books where author_id = author';
  create function large() returns text language sql stable as $$ select 'é' || repeat('x', ${15 * 1024 * 1024}) $$;
  insert into authors select n, 'Author ' || n from generate_series(1, 1000) as n;
  insert into books select n, 'The book with the number ' || n, n % 1000, 1 + n % 1000 from generate_series(1, 10000) as n;
  insert into reviews select n, n % 6, 'A note about a book', 1 + n % 10000 from generate_series(1, 30000) as n;
  analyze authors, books, reviews`

export interface Case {
  name: string
  /** Requests of a block at most. */
  jobs: number
  /** Number of different requests to the Data API; as many as are sent at once by default. */
  requests?: number
  /** Limit for the time from a request to its statements. */
  compileMsMax?: number
  /** The n-th of the requests that are sent in turn. */
  request(n: number): { method: 'GET' | 'POST'; path: string; prefer?: string; body?: unknown }
}

const JOBS = 480
const event = (n: number) => ({ kind: 'visit', data: { page: `/books/${n}`, seconds: n } })
const post = (path: string, body: unknown, prefer = '') => ({ method: 'POST', path, body, prefer }) as const
const get = (path: string, prefer = '') => ({ method: 'GET', path, prefer }) as const

export const CASES: readonly Case[] = [
  { name: 'select 1 row', jobs: JOBS, request: (n) => get(`/books?select=*&id=eq.${1 + n}`) },
  {
    name: 'select 1 row, never by the same address',
    jobs: JOBS,
    requests: 10_000,
    request: (n) => get(`/books?select=*&id=eq.${1 + n}`),
  },
  { name: 'select 100 rows', jobs: JOBS, request: (n) => get(`/books?select=*&order=id&limit=100&id=gt.${n}`) },
  { name: 'select 10,000 rows', jobs: 64, request: () => get('/books?select=*') },
  {
    name: 'embed two levels: 5 authors, 50 books, 150 reviews',
    jobs: JOBS,
    request: (n) =>
      get(`/authors?select=name,books(title,reviews(stars,note))&id=gt.${10 * n}&id=lte.${10 * n + 5}&order=id`),
  },
  {
    name: 'filtered count of 5,000',
    jobs: JOBS,
    request: (n) => get(`/books?select=id&pages=gte.${500 + n}&limit=1`, 'count=exact'),
  },
  { name: 'insert 1 row', jobs: JOBS, request: (n) => post('/events', event(n), 'return=minimal') },
  {
    name: 'insert 1,000 rows',
    jobs: 64,
    // Most of the time is that of parsing the body.
    compileMsMax: 1,
    request: () =>
      post(
        '/events',
        Array.from({ length: 1_000 }, (_, n) => event(n)),
        'return=minimal',
      ),
  },
  {
    name: 'upsert 1 row',
    jobs: JOBS,
    request: (n) =>
      post('/authors', { id: 1 + n, name: `Author ${n}` }, 'resolution=merge-duplicates,return=representation'),
  },
  { name: 'RPC', jobs: JOBS, request: (n) => post('/rpc/pages_of', { author: 1 + n }) },
]
