declare module 'picomatch' {
  export default function picomatch(
    patterns: readonly string[],
    options?: { dot?: boolean; nonegate?: boolean },
  ): (path: string) => boolean
}
