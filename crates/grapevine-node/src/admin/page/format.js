// Numbers as people read them. Unknown is a dash, never zero.

export const DASH = "–";

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

const scaled = (value, units, step) => {
  let at = 0;
  let rest = Math.abs(value);
  while (rest >= step * 0.9995 && at < units.length - 1) {
    rest /= step;
    at += 1;
  }
  const digits = at === 0 || rest >= 99.95 ? 0 : 1;
  const number = rest.toFixed(digits);
  // What rounds to zero has no sign.
  return `${value < 0 && number !== "0" ? "−" : ""}${number}${units[at]}`;
};

/** 1234567 -> "1.2M". */
export const short = (value) => (known(value) ? scaled(value, ["", "k", "M", "G", "T"], 1000) : DASH);

/** 1234567 -> "1,234,567". */
export const whole = (value) => (known(value) ? Math.round(value).toLocaleString("en-US") : DASH);

/** With a sign, for errors and votes. */
export const signed = (value) => (known(value) ? `${value >= 0.5 ? "+" : ""}${short(value)}` : DASH);

/** 0.901 -> "90.1 %". */
export const percent = (share) => (known(share) ? `${(share * 100).toFixed(1)} %` : DASH);

/** 0.901 -> "90 %", for narrow columns. */
export const roundPercent = (share) => (known(share) ? `${Math.round(share * 100)} %` : DASH);

export const bytes = (value) => (known(value) ? scaled(value, [" B", " kB", " MB", " GB"], 1000) : DASH);

export const perSecond = (value) => {
  if (!known(value)) return DASH;
  return value < 9.95 ? value.toFixed(1) : short(value);
};

/** A duration in ms. */
export function duration(ms) {
  if (!known(ms)) return DASH;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

const two = (n) => String(n).padStart(2, "0");

/** Local time of day. */
export function clock(atMs, seconds = true) {
  const at = new Date(atMs);
  const minutes = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${minutes}:${two(at.getSeconds())}` : minutes;
}

export const plural = (n, one, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;
