/** Runs one piece of work at a time, in the order of the calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve()

  run<Value>(work: () => Promise<Value>): Promise<Value> {
    const result = this.#last.then(work, work)
    this.#last = result.catch(() => {})
    return result
  }
}

/** A mutex for each key. */
export class KeyedMutex {
  readonly #mutexes = new Map<string, { mutex: Mutex; uses: number }>()

  async run<Value>(key: string, work: () => Promise<Value>): Promise<Value> {
    const entry = this.#mutexes.get(key) ?? { mutex: new Mutex(), uses: 0 }
    this.#mutexes.set(key, entry)
    entry.uses += 1
    try {
      return await entry.mutex.run(work)
    } finally {
      entry.uses -= 1
      if (entry.uses === 0) this.#mutexes.delete(key)
    }
  }
}

/** Bounds how many pieces of work run at the same time; the others wait in the order of the calls. */
export class Semaphore {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(limit: number) {
    this.#free = limit
  }

  async run<Value>(work: () => Promise<Value>): Promise<Value> {
    if (this.#free > 0) this.#free -= 1
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next) next()
      else this.#free += 1
    }
  }
}
