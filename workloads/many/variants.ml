(* Variants, closures, exceptions, the collector, a call into C. *)
type tree = Leaf | Node of tree * int * tree

let rec insert key = function
  | Leaf -> Node (Leaf, key, Leaf)
  | Node (left, k, right) when key < k -> Node (insert key left, k, right)
  | Node (left, k, right) -> Node (left, k, insert key right)

let rec fold f acc = function Leaf -> acc | Node (l, k, r) -> fold f (f (fold f acc l) k) r
exception Bottom of int
let rec raised n = if n = 0 then raise (Bottom 7) else 1 + raised (n - 1)

let () =
  let total = ref 0 in
  for round = 1 to 20 do
    let tree = List.fold_left (fun tree i -> insert (i * 37 mod 101) tree) Leaf (List.init 40 Fun.id) in
    total := !total + fold (fun acc k -> acc + (k * round)) 0 tree;
    total := !total + String.length (Printf.sprintf "%d %f" round (sqrt (float_of_int round)));
    (try ignore (raised 5) with Bottom n -> total := !total + n);
    Gc.minor ()
  done;
  print_int !total
